"""The protocol of evaluation and its judges, from params.yaml and trained models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.evaluation.caption_evaluation import Evaluation
from pipeline.evaluation.hard_gallery import HardGallery, galleries_by_facts, galleries_by_vectors
from pipeline.evaluation.multi_sample import MultiSample
from pipeline.evaluation.rerank import Reranker
from pipeline.evaluation.untrained_captions import (
    BaselineCaptioner,
    oracle_captions,
    random_captions,
    template_captions,
)
from pipeline.extension import SplitEvaluation
from pipeline.metrics.language import BLEU, LanguageScorer
from pipeline.models.decoder import Decoder
from pipeline.workflow.build_judges import build_judges, judge_folder, known_facts, load_judge
from pipeline.workflow.slices import SLICES, find_owner, load_any_agent
from pipeline.worlds.scenes.scene_facts import Scene

if TYPE_CHECKING:
    from pipeline.config.views import ParameterNode
    from pipeline.workflow.stage import Stage


def load_speaker(folder: Path) -> Decoder:
    """Return the trained speaker in `folder`."""
    speaker = load_any_agent(folder / "weights.safetensors", "speaker")
    assert isinstance(speaker, Decoder)
    return speaker


@contextmanager
def build_evaluation(
    section: ParameterNode,
    stage: Stage,
    speaker: Decoder,
    prepared: Prepared,
    store: FeatureStore,
    rerank: int | None = None,
) -> Iterator[SplitEvaluation]:
    """Yield the protocol of the section `evaluate`: its judges, its Java scorers, and the baselines of this method.

    `rerank`: the number of captions per image that the method's own listener ranks. Raises UserError for it where a
    slice's speaker does not support it.
    """
    chosen, device = section.judges.plain(), stage.device
    if found := find_owner(SLICES, [speaker]):
        folders = {name: judge_folder(which, stage.model, stage.root) for name, which in chosen.items()}
        pretrained, method = stage.root / "pretrained", str(stage.instance)
        yield found.build_evaluation(section, prepared, store, folders, pretrained, method, rerank, device)
        return
    judges = build_judges(chosen, stage.model, stage.root, prepared, device)
    metrics = [name for group in section.metrics for name in (BLEU if group == "BLEU" else (group,))]
    with LanguageScorer(metrics) as language:
        facts, names = known_facts(prepared), section.baselines.plain().get(stage.instance, ())
        baselines = {name: _baseline(name, prepared, store, facts) for name in names}
        own = None if rerank is None else load_judge(stage.model, stage.root, prepared, device)
        several = MultiSample(**section.multi_sample) if section.multi_sample else None
        near = _near(section.hard_gallery, prepared, store, stage.root, device) if section.hard_gallery else None
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
            no_repeat=section.no_repeat_ngram_size,
            near_by=_near_words(section.hard_gallery),
            rerank=None if own is None or rerank is None else Reranker(rerank, own),
        )


def _near_words(near: ParameterNode | None) -> str | None:
    """Return the name of the hard gallery in the protocol's signature; None where there is none."""
    if near is None:
        return None
    return str(near.similarity) if near.images is None else f"{near.similarity}:{near.images}"


def _near(
    section: ParameterNode, prepared: Prepared, store: FeatureStore, root: Path, device: torch.device
) -> HardGallery:
    if section.similarity == "facts":
        return galleries_by_facts(prepared)
    if section.similarity == "features":
        return galleries_by_vectors(lambda rows: torch.from_numpy(store.pooled(rows.numpy())), section.images)
    return galleries_by_vectors(
        load_judge(root / "pretrained" / section.similarity, root, prepared, device).encode_image, section.images
    )


def _baseline(name: str, prepared: Prepared, store: FeatureStore, facts: Mapping[str, Scene]) -> BaselineCaptioner:
    if name == "template":
        return template_captions(prepared, store, facts)
    return oracle_captions(prepared, facts) if name == "oracle" else random_captions(prepared)


def flat_numbers(results: Mapping[str, Any], below: str = "") -> dict[str, float]:
    """Return the numbers in nested `results` by their names, joined by slashes."""
    found: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            found |= flat_numbers(value, f"{below}{name}/")
        else:
            found[f"{below}{name}"] = float(value)
    return found
