"""The protocol of evaluation of one stage, from params.yaml: of captions, or of answers in dialogs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.evaluation.evaluation_settings import EvaluationSettings, GallerySettings, open_evaluation
from pipeline.evaluation.judges import ADAPTED, OWN, JudgeSources
from pipeline.evaluation.multi_sample import MultiSample
from pipeline.extension import SplitEvaluation
from pipeline.models.decoder import Decoder
from pipeline.slices.evaluation_parts import EVALUATION
from pipeline.workflow.slices import SLICES, find_owner, load_any_agent

if TYPE_CHECKING:
    from pipeline.config.schema import EvaluateSettings
    from pipeline.workflow.stage import Stage


def load_speaker(folder: Path) -> Decoder:
    """Return the trained speaker in `folder`."""
    speaker = load_any_agent(folder / "weights.safetensors", "speaker")
    assert isinstance(speaker, Decoder)
    return speaker


@contextmanager
def build_evaluation(
    settings: EvaluateSettings,
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
    chosen, device = settings.judges, stage.device
    if found := find_owner(SLICES, [speaker]):
        pretrained, method = stage.root / "pretrained", str(stage.instance)
        own = {OWN: stage.model, ADAPTED: stage.model / "adapted"}
        folders = {name: own.get(which, pretrained / which) for name, which in chosen.items()}
        yield found.build_evaluation(settings, prepared, store, folders, pretrained, method, rerank, device)
        return
    gallery, sizes = settings.hard_gallery, settings.multi_sample
    protocol = EvaluationSettings(
        beam=settings.beam,
        metrics=settings.metrics,
        judges=chosen,
        no_repeat=settings.no_repeat_ngram_size,
        hard_gallery=GallerySettings(gallery.similarity, gallery.images) if gallery else None,
        multi_sample=MultiSample(sizes.samples, sizes.beams) if sizes else None,
        baselines=settings.baselines.get(str(stage.instance), ()),
        rerank=rerank,
    )
    sources = JudgeSources(stage.model, stage.root, prepared, device)
    with open_evaluation(protocol, EVALUATION, sources, store) as opened:
        yield opened


def flat_numbers(results: Mapping[str, Any], below: str = "") -> dict[str, float]:
    """Return the numbers in nested `results` by their names, joined by slashes."""
    found: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            found |= flat_numbers(value, f"{below}{name}/")
        else:
            found[f"{below}{name}"] = float(value)
    return found
