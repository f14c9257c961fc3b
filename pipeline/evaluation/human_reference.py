"""Reference statistics of captions, and the same statistics of human captions for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from pipeline.data.corpus import tokenise
from pipeline.data.prepared import PreparedData
from pipeline.metrics.chair import compute_chair
from pipeline.metrics.diversity import measure_caption_diversity
from pipeline.metrics.reader import compute_reader_statistics, leave_one_out


def measure_human_reference(
    texts: Sequence[str], tokens: Tensor, prepared: PreparedData, rows: np.ndarray
) -> dict[str, Any]:
    """Return `diversity`, `reader` and `chair` of one caption of each image `rows` (M,), as text and `tokens` (M, T).

    `human_…` holds the same statistics of human captions. `human_diversity` depends on the number of captions, so it
    uses the first caption of each image. The others compare each caption with the image's other captions; they need an
    image with two captions.
    """
    vocabulary = prepared.vocabulary
    words = [tokenise(text) if vocabulary.reads_text else text.split() for text in texts]
    human = [prepared.words(row) for row in rows]
    held_out, others = leave_one_out(human)
    annotated = prepared.annotated_objects(rows)
    held_out_objects: list[list[str]] = []  # objects of each held-out caption's image
    if annotated:
        for names, captions in zip(annotated, human, strict=True):
            held_out_objects += [names] * len(captions) if len(captions) > 1 else []
    first = [" ".join(captions[0]) for captions in human]
    statistics: dict[str, Any] = {
        "diversity": measure_caption_diversity(texts, tokens.tolist(), vocabulary.unk),
        "human_diversity": measure_caption_diversity(first, prepared.references(rows)[:, 0].tolist(), vocabulary.unk),
        "reader": compute_reader_statistics(words, human),
        "chair": compute_chair(words, human, annotated),
    }
    if held_out:
        statistics["human_reader"] = compute_reader_statistics(held_out, others)
        statistics["human_chair"] = compute_chair(held_out, others, held_out_objects)
    return statistics
