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
from pipeline.evaluation.evaluate import Evaluation
from pipeline.evaluation.judges import Judge, ListenerJudge, TextJudge
from pipeline.evaluation.several import Several
from pipeline.metrics.language import BLEU, LanguageScorer
from pipeline.models.decoder import Decoder
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent
from pipeline.scenes.facts import FACTS
from pipeline.scenes.faithfulness import read_facts

OWN, ADAPTED = "own", "adapted"  # judges that a method trains; all others are pretrained

if TYPE_CHECKING:
    from pipeline.config.views import Node


def judges_of(
    chosen: Mapping[str, str], model: Path, root: Path, store: FeatureStore, device: torch.device
) -> dict[str, Judge]:
    """Judges by name, as `evaluate.judges` has them.

    own: the listener that was trained with the speaker in the folder `model`; adapted: the pretrained one after it got
    used to this speaker; any other word: the pretrained model of that name.
    """
    folders = {OWN: model, ADAPTED: model / "adapted"}
    places = {name: folders.get(which, root / "pretrained" / which) for name, which in chosen.items()}
    return {name: judge_in(folder, store, device) for name, folder in places.items()}


def judge_in(folder: Path, store: FeatureStore, device: torch.device) -> Judge:
    """The judge whose weights are in `folder`; UserError where what is there can judge nobody."""
    agent = load_agent(folder / "weights.safetensors", "listener")
    if isinstance(agent, Listener):
        return ListenerJudge(agent, lambda rows: torch.from_numpy(store.pooled(rows.numpy())), device)
    if isinstance(agent, DualEncoder):
        return TextJudge(agent, device)
    raise UserError(
        f"{folder}: a {type(agent).__name__} is no judge: it must have hear and look (evaluation/judges.py)"
    )


def speaker_in(folder: Path) -> Decoder:
    """The trained speaker in `folder`."""
    speaker = load_agent(folder / "weights.safetensors", "speaker")
    assert isinstance(speaker, Decoder)
    return speaker


@contextmanager
def evaluation_of(
    section: Node, prepared: Prepared, store: FeatureStore, judges: Mapping[str, Judge], device: torch.device
) -> Iterator[Evaluation]:
    """The protocol of the section `evaluate`, with its Java programs running."""
    metrics = [name for group in section.metrics for name in (BLEU if group == "BLEU" else (group,))]
    with LanguageScorer(metrics) as language:
        known = read_facts(prepared.folder / FACTS) if (prepared.folder / FACTS).exists() else {}
        several = Several(**section.several) if section.several else None
        yield Evaluation(prepared, store, judges, language, section.beam, device, several, known)


def flat_numbers(results: Mapping[str, Any], below: str = "") -> dict[str, float]:
    """The numbers in nested `results`, names joined by slashes."""
    found: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            found |= flat_numbers(value, f"{below}{name}/")
        else:
            found[f"{below}{name}"] = float(value)
    return found
