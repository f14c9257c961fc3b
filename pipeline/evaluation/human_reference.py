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


def measure_against_references(
    texts: Sequence[str], tokens: Tensor, prepared: PreparedData, rows: np.ndarray
) -> dict[str, Any]:
    """Return `diversity`, `reader` and `chair` of one caption of each image `rows` (M,).

    The captions are given as texts, and as `tokens` (M, T).
    """
    vocabulary = prepared.vocabulary
    words = [tokenise(text) if vocabulary.encodes_text else text.split() for text in texts]
    human_words = [prepared.words(row) for row in rows]
    return {
        "diversity": measure_caption_diversity(texts, tokens.tolist(), vocabulary.unk),
        "reader": compute_reader_statistics(words, human_words),
        "chair": compute_chair(words, human_words, prepared.annotated_objects(rows)),
    }


def measure_human_reference(prepared: PreparedData, rows: np.ndarray) -> dict[str, Any]:
    """Return the statistics of `measure_against_references` for human captions of the images `rows` (M,).

    `human_diversity` depends on the number of captions, so it uses the first caption of each image. `human_reader` and
    `human_chair` compare each caption with the image's other captions; both are missing if no image has two captions.
    """
    human_words = [prepared.words(row) for row in rows]
    held_out, other_captions = leave_one_out(human_words)
    object_names = prepared.annotated_objects(rows)
    held_out_objects: list[list[str]] = []  # objects of each held-out caption's image
    if object_names:
        for names, captions in zip(object_names, human_words, strict=True):
            held_out_objects += [names] * len(captions) if len(captions) > 1 else []
    first_captions = [" ".join(captions[0]) for captions in human_words]
    statistics: dict[str, Any] = {
        "human_diversity": measure_caption_diversity(
            first_captions, prepared.references(rows)[:, 0].tolist(), prepared.vocabulary.unk
        )
    }
    if held_out:
        statistics["human_reader"] = compute_reader_statistics(held_out, other_captions)
        statistics["human_chair"] = compute_chair(held_out, other_captions, held_out_objects)
    return statistics
