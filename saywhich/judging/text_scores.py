"""Scores of captions that need no judge: metrics against references, and text quality."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.data.corpus import tokenise
from pipeline.metrics.chair import count_objects
from pipeline.metrics.diversity import compute_self_bleu, has_bad_ending, has_repetition
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import COUNT_METRICS, METRIC_NAMES
from saywhich.judging.caption_scores import (
    BAD_END,
    CHAIR_I,
    CHAIR_S,
    DISTINCT,
    REPETITION,
    SELF_BLEU,
    SHARED,
    VOCABULARY,
    WORDS,
    ScoreKey,
    ScoreValues,
    average_over,
    compute_ratio,
)
from saywhich.judging.notes import Notes
from saywhich.judging.retrieval_scores import flatten

Captions = Sequence[Sequence[str]]  # captions of M images


def score_text_quality(captions: Captions, references: Captions, annotated: Captions) -> dict[ScoreKey, ScoreValues]:
    """Return the text quality of the captions of M images.

    CHAIR counts an object as hallucinated if neither the image's references nor its `annotated` names have it. Images
    with neither do not count.
    """
    texts, owners = flatten(captions)
    images = len(captions)
    words = [tokenise(text) for text in texts]
    images_by_caption: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for image, caption in zip(owners.tolist(), words, strict=True):
        images_by_caption[caption].add(image)
    shared = np.zeros(images)
    for sharing_images in images_by_caption.values():
        if len(sharing_images) > 1:
            shared[list(sharing_images)] = 100.0

    def average_flags(flags: Sequence[bool]) -> ScoreValues:
        return average_over(owners, 100.0 * np.array(flags, dtype=np.float64), images)

    scores = {
        WORDS: average_over(owners, np.array([float(len(caption)) for caption in words]), images),
        BAD_END: average_flags([has_bad_ending(caption) for caption in words]),
        REPETITION: average_flags([has_repetition(caption) for caption in words]),
        SHARED: compute_ratio(shared, np.ones(images)),
        DISTINCT: ScoreValues(100.0 * len(images_by_caption) / len(words)),
        VOCABULARY: ScoreValues(float(len({word for caption in words for word in caption}))),
    }
    if len(words) > 1:
        scores[SELF_BLEU] = ScoreValues(compute_self_bleu([" ".join(caption) for caption in words]))
    images_with_objects = [image for image in range(images) if references[image] or annotated[image]]
    rows = [row for row, image in enumerate(owners.tolist()) if image in set(images_with_objects)]
    if rows:
        reference_words = {image: [tokenise(text) for text in references[image]] for image in images_with_objects}
        row_owners = owners[rows]
        row_references = [reference_words[image] for image in row_owners]
        row_annotated = [annotated[image] for image in row_owners]
        counts = np.array(count_objects([words[row] for row in rows], row_references, row_annotated), dtype=np.float64)
        hallucinated, mentions = (np.bincount(row_owners, counts[:, column], images) for column in (0, 1))
        if mentions.any():
            scores[CHAIR_I] = compute_ratio(100.0 * hallucinated, mentions)
        scores[CHAIR_S] = average_over(row_owners, 100.0 * (counts[:, 0] > 0), images)
    return {ScoreKey("", name): values for name, values in scores.items()}


def score_by_references(
    language: LanguageScorer, captions: Captions, references: Captions, notes: Notes
) -> dict[ScoreKey, ScoreValues]:
    """Return the language metrics of the captions of M images; add a note for each metric that is not computed.

    Images without references do not count.
    """
    referenced_captions = [each if texts else [] for each, texts in zip(captions, references, strict=True)]
    texts, owners = flatten(referenced_captions)
    if not texts:
        return {}
    result = language.score(texts, [references[image] for image in owners])
    for name, reason in result.not_computed.items():
        notes.add_once(f"metrics that are not computed ({reason})", name)
    scores = {}
    for name, value in result.scores.items():
        key = ScoreKey("", name)
        if name in COUNT_METRICS and result.bleu_counts is not None:
            counts = np.stack(
                [np.bincount(owners, column, len(captions)) for column in result.bleu_counts.T.astype(np.float64)], 1
            )
            scores[key] = ScoreValues(value, bleu=counts, order=COUNT_METRICS.index(name) + 1)
        else:
            mean = average_over(owners, result.per_caption[name], len(captions))
            scores[key] = ScoreValues(value, mean.sums, mean.counts)
    return scores


def list_computable_scores(names: Sequence[str] | None) -> list[str]:
    """Return the names of the scores of the metrics `names`; None stands for all, except SPICE without its parser."""
    from pipeline.metrics.java import NotComputedError
    from pipeline.metrics.registry import METRICS

    scores = []
    for metric in METRICS:
        if names is not None and metric.name not in names:
            continue
        try:
            if names is None and metric.check:
                metric.check()
        except NotComputedError:
            continue  # SPICE's parser is missing, and SPICE was not requested
        scores += [name for name in metric.names if name in METRIC_NAMES]
    return scores
