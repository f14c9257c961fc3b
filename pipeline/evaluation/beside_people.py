"""Captions as a reader sees them, and the same of human captions, to stand beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from pipeline.data.corpus import tokenise
from pipeline.data.prepared import Prepared
from pipeline.metrics.chair import chair
from pipeline.metrics.diversity import diversity
from pipeline.metrics.reader import leave_one_out, reader


def beside_people(texts: Sequence[str], tokens: Tensor, prepared: Prepared, rows: np.ndarray) -> dict[str, Any]:
    """`diversity`, `reader` and `chair` of one caption of each image `rows` (M,), as text and as `tokens` (M, T).

    And the same of human captions as `human_…`: in `human_diversity`, which depends on how many captions there are, of
    the first of each image; in the others of each one, against the others of its image, if any image has two.
    """
    vocabulary = prepared.vocabulary
    said = [tokenise(text) if vocabulary.reads_text else text.split() for text in texts]
    people = [prepared.words(row) for row in rows]
    alone, others = leave_one_out(people)
    first = [" ".join(words[0]) for words in people]
    return {
        "diversity": diversity(texts, tokens.tolist(), vocabulary.unk),
        "human_diversity": diversity(first, prepared.references(rows)[:, 0].tolist(), vocabulary.unk),
        "reader": reader(said, people),
        "chair": chair(said, people),
        **({"human_reader": reader(alone, others), "human_chair": chair(alone, others)} if alone else {}),
    }
