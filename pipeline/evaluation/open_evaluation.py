"""Construction of the evaluation protocol from its settings, its registered parts and the trained models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.evaluation.baseline_captions import BASELINES, BaselineKind
from pipeline.evaluation.caption_evaluation import Evaluation
from pipeline.evaluation.caption_truth import TruthCheckerBuilder
from pipeline.evaluation.hard_gallery import HardGallery, build_vector_gallery
from pipeline.evaluation.judge_names import OWN
from pipeline.evaluation.judges import (
    JUDGES,
    Judge,
    JudgeKind,
    JudgeSources,
    build_judges,
    open_own_judge,
    open_pretrained_judge,
)
from pipeline.evaluation.multi_sample import MultiSample
from pipeline.evaluation.pragmatic_captions import PragmaticCaptions
from pipeline.evaluation.rerank import Reranker
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import BY_NAME

if TYPE_CHECKING:
    from pipeline.evaluation.evaluation_settings import EvaluationSettings, GallerySettings, RerankSettings

FEATURES = "features"  # the similarity of the pooled features, which judges also encode


@dataclass(frozen=True)
class EvaluationParts:
    """Kinds of judges, baselines and hard galleries, and the truth checker, that an evaluation may use."""

    judges: Sequence[JudgeKind] = JUDGES
    baselines: Sequence[BaselineKind] = BASELINES
    galleries: Mapping[str, Callable[[PreparedData], HardGallery]] | None = None  # by similarity
    truth: TruthCheckerBuilder | None = None


@contextmanager
def open_evaluation(
    settings: EvaluationSettings,
    method: str,
    rerank: RerankSettings | None,
    parts: EvaluationParts,
    sources: JudgeSources,
    store: FeatureStore,
    pragmatic: tuple[float, int, str] | None = None,
) -> Iterator[Evaluation]:
    """Yield the evaluation protocol of a method; its Java scorers end with the block.

    `pragmatic`: α, the number of distractors and the posterior of pragmatic decoding.
    """
    prepared, builders = sources.prepared, {kind.name: kind.build for kind in parts.baselines}
    judges = build_judges(settings.judges, parts.judges, sources)
    metrics = [score for name in settings.metrics for score in BY_NAME[name].names]
    gallery, sizes = settings.hard_gallery, settings.multi_sample
    with LanguageScorer(metrics) as language:
        yield Evaluation(
            prepared,
            store,
            judges,
            language,
            settings.beam,
            sources.device,
            None if gallery is None else _build_hard_gallery(gallery, parts, sources, store),
            None if sizes is None else MultiSample(sizes.samples, sizes.beams),
            None if parts.truth is None else parts.truth(prepared),
            {name: builders[name](prepared, store) for name in settings.baselines.get(method, ())},
            no_repeat=settings.no_repeat_ngram_size,
            hard_gallery_name=None if gallery is None else gallery.title,
            rerank=None if rerank is None else Reranker(rerank, _load_listener(rerank.listener, sources)),
            pragmatic=None if pragmatic is None else PragmaticCaptions(*pragmatic, open_own_judge(sources)),
        )


def _load_listener(name: str, sources: JudgeSources) -> Judge:
    return open_own_judge(sources) if name == OWN else open_pretrained_judge(name, sources)


def _build_hard_gallery(
    settings: GallerySettings, parts: EvaluationParts, sources: JudgeSources, store: FeatureStore
) -> HardGallery:
    if parts.galleries and settings.similarity in parts.galleries:
        return parts.galleries[settings.similarity](sources.prepared)
    assert settings.images is not None
    if settings.similarity == FEATURES:
        return build_vector_gallery(lambda rows: torch.from_numpy(store.pooled(rows.numpy())), settings.images)
    return build_vector_gallery(open_pretrained_judge(settings.similarity, sources).encode_image, settings.images)
