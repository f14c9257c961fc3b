"""The protocol of evaluation and its judges, from params.yaml and trained models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.evaluation.evaluate import Evaluation
from pipeline.evaluation.several import Several
from pipeline.metrics.language import BLEU, LanguageScorer
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent
from pipeline.scenes.facts import FACTS
from pipeline.scenes.faithfulness import read_facts

if TYPE_CHECKING:
    import torch

    from pipeline.config.views import Node


def evaluated(model: Path, root: Path) -> tuple[Decoder, dict[str, Listener]]:
    """The speaker in the folder `model`, and who judges it: its own listener, the one before joint training, that one
    after it got used to this speaker, and an independent one.
    """
    speaker = load_agent(model / "weights.safetensors", "speaker")
    models = root / "models"
    paths = {"own": model, "adapted": model / "adapted", "before": models / "listener", "judge": models / "judge"}
    judges = {name: load_agent(path / "weights.safetensors", "listener") for name, path in paths.items()}
    assert isinstance(speaker, Decoder)
    return speaker, {name: judge for name, judge in judges.items() if isinstance(judge, Listener)}


@contextmanager
def evaluation_of(
    section: Node, prepared: Prepared, store: FeatureStore, judges: dict[str, Listener], device: torch.device
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
