"""The protocol of evaluation and its judges, from params.yaml and trained models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.baselines import Baseline, oracle, random, template
from pipeline.evaluation.dialogs import DialogEvaluation
from pipeline.evaluation.evaluate import Evaluation
from pipeline.evaluation.near import Near, by_facts, by_vectors
from pipeline.evaluation.priors import PRIORS
from pipeline.evaluation.rerank import Reranked
from pipeline.evaluation.several import Several
from pipeline.metrics.language import BLEU, LanguageScorer
from pipeline.models.answering import Answering
from pipeline.models.decoder import Decoder
from pipeline.models.weights import load_agent
from pipeline.scenes.facts import Scene
from pipeline.workflow.build_judges import discriminator_in, folder_of, judge_in, judges_of, known_facts

if TYPE_CHECKING:
    from pipeline.config.views import Node
    from pipeline.workflow.stage import Stage


def speaker_in(folder: Path) -> Decoder:
    """The trained speaker in `folder`."""
    speaker = load_agent(folder / "weights.safetensors", "speaker")
    assert isinstance(speaker, Decoder)
    return speaker


@contextmanager
def evaluation_of(
    section: Node, stage: Stage, speaker: Decoder, prepared: Prepared, store: FeatureStore, rerank: int | None = None
) -> Iterator[Evaluation | DialogEvaluation]:
    """The protocol of the section `evaluate`: its judges, its Java programs running, the baselines of this method.

    `rerank`: how many captions of an image the own listener chooses from; UserError in dialogs, which have one answer.
    """
    chosen, device = section.judges.plain(), stage.device
    if isinstance(speaker, Answering):
        if rerank is not None:
            raise UserError("rerank: answers in dialogs are not drawn and ranked; take it out of the method's block")
        listening = {
            name: discriminator_in(folder_of(which, stage.model, stage.root)) for name, which in chosen.items()
        }
        names = section.beside.plain().get(stage.instance, ())
        beside = {
            name: name if name in PRIORS else discriminator_in(stage.root / "pretrained" / name) for name in names
        }
        yield DialogEvaluation(prepared, store, listening, section.beam, device, beside)
        return
    judges = judges_of(chosen, stage.model, stage.root, prepared, device)
    metrics = [name for group in section.metrics for name in (BLEU if group == "BLEU" else (group,))]
    with LanguageScorer(metrics) as language:
        facts, names = known_facts(prepared), section.baselines.plain().get(stage.instance, ())
        baselines = {name: _baseline(name, prepared, store, facts) for name in names}
        own = None if rerank is None else judge_in(stage.model, stage.root, prepared, device)
        several = Several(**section.several) if section.several else None
        near = _near(section.near, prepared, store, stage.root, device) if section.near else None
        yield Evaluation(
            prepared,
            store,
            judges,
            language,
            section.beam,
            device,
            near,
            several,
            facts,
            baselines,
            no_repeat=section.no_repeat,
            near_by=_near_words(section.near),
            rerank=None if own is None or rerank is None else Reranked(rerank, own),
        )


def _near_words(near: Node | None) -> str | None:
    """What the near gallery is, as the protocol says it."""
    if near is None:
        return None
    return str(near.by) if near.images is None else f"{near.by}:{near.images}"


def _near(section: Node, prepared: Prepared, store: FeatureStore, root: Path, device: torch.device) -> Near:
    if section.by == "facts":
        return by_facts(prepared)
    if section.by == "features":
        return by_vectors(lambda rows: torch.from_numpy(store.pooled(rows.numpy())), section.images)
    return by_vectors(judge_in(root / "pretrained" / section.by, root, prepared, device).look, section.images)


def _baseline(name: str, prepared: Prepared, store: FeatureStore, facts: Mapping[str, Scene]) -> Baseline:
    if name == "template":
        return template(prepared, store, facts)
    return oracle(prepared, facts) if name == "oracle" else random(prepared)


def flat_numbers(results: Mapping[str, Any], below: str = "") -> dict[str, float]:
    """The numbers in nested `results`, names joined by slashes."""
    found: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            found |= flat_numbers(value, f"{below}{name}/")
        else:
            found[f"{below}{name}"] = float(value)
    return found
