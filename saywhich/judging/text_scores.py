"""Scores of captions that need no judge: metrics against references, and text quality."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.data.corpus import tokenise
from pipeline.metrics.chair import object_counts
from pipeline.metrics.diversity import has_bad_ending, has_repetition, self_bleu
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import COMPUTED, COUNTED
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
    mean_over,
    ratio,
)
from saywhich.judging.notes import Notes
from saywhich.judging.retrieval_scores import flatten

Captions = Sequence[Sequence[str]]  # captions of M images


def reader_scores(captions: Captions, references: Captions, annotated: Captions) -> dict[ScoreKey, ScoreValues]:
    """Return the scores of text quality of the captions of M images.

    Objects are absent from an image if neither its references nor the names `annotated` in it have them; images with
    neither do not count.
    """
    texts, owners = flatten(captions)
    images = len(captions)
    words = [tokenise(text) for text in texts]
    places: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for image, caption in zip(owners.tolist(), words, strict=True):
        places[caption].add(image)
    shared = np.zeros(images)
    for there in places.values():
        if len(there) > 1:
            shared[list(there)] = 100.0

    def share(of: Sequence[bool]) -> ScoreValues:
        return mean_over(owners, 100.0 * np.array(of, dtype=np.float64), images)

    found = {
        WORDS: mean_over(owners, np.array([float(len(caption)) for caption in words]), images),
        BAD_END: share([has_bad_ending(caption) for caption in words]),
        REPETITION: share([has_repetition(caption) for caption in words]),
        SHARED: ratio(shared, np.ones(images)),
        DISTINCT: ScoreValues(100.0 * len(places) / len(words)),
        VOCABULARY: ScoreValues(float(len({word for caption in words for word in caption}))),
    }
    if len(words) > 1:
        found[SELF_BLEU] = ScoreValues(self_bleu([" ".join(caption) for caption in words]))
    known = [image for image in range(images) if references[image] or annotated[image]]
    rows = [row for row, image in enumerate(owners.tolist()) if image in set(known)]
    if rows:
        human = {image: [tokenise(text) for text in references[image]] for image in known}
        of = owners[rows]
        counts = np.array(
            object_counts(
                [words[row] for row in rows], [human[image] for image in of], [annotated[image] for image in of]
            ),
            dtype=np.float64,
        )
        wrong, mentions = (np.bincount(of, counts[:, column], images) for column in (0, 1))
        if mentions.any():
            found[CHAIR_I] = ratio(100.0 * wrong, mentions)
        found[CHAIR_S] = mean_over(of, 100.0 * (counts[:, 0] > 0), images)
    return {ScoreKey("", name): values for name, values in found.items()}


def reference_scores(
    language: LanguageScorer, captions: Captions, references: Captions, notes: Notes
) -> dict[ScoreKey, ScoreValues]:
    """Return the language metrics of the captions of those of M images that have references."""
    pairs = [(each if human else [], human) for each, human in zip(captions, references, strict=True)]
    texts, owners = flatten([each for each, _ in pairs])
    if not texts:
        return {}
    found = language.score(texts, [pairs[image][1] for image in owners])
    for name, why in found.not_computed.items():
        notes.add_once(f"metrics that are not computed ({why})", name)
    scores = {}
    for name, value in found.scores.items():
        key = ScoreKey("", name)
        if name in COUNTED and found.bleu_counts is not None:
            counts = np.stack(
                [np.bincount(owners, column, len(captions)) for column in found.bleu_counts.T.astype(np.float64)], 1
            )
            scores[key] = ScoreValues(value, bleu=counts, order=COUNTED.index(name) + 1)
        else:
            mean = mean_over(owners, found.per_caption[name], len(captions))
            scores[key] = ScoreValues(value, mean.sums, mean.counts)
    return scores


def list_computable_scores(names: Sequence[str] | None) -> list[str]:
    """Return the names of the scores of the metrics `names`; None: of all, but of SPICE only where its parser is."""
    from pipeline.metrics.java import NotComputedError
    from pipeline.metrics.registry import METRICS

    found = []
    for metric in METRICS:
        if names is not None and metric.name not in names:
            continue
        try:
            if names is None and metric.check:
                metric.check()
        except NotComputedError:
            continue  # SPICE's parser is missing, and SPICE was not requested
        found += [name for name in metric.names if name in COMPUTED]
    return found
