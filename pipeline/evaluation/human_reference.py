"""Reference statistics of captions, and the same statistics of human captions for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from pipeline.data.corpus import tokenise
from pipeline.data.prepared import Prepared
from pipeline.metrics.chair import chair
from pipeline.metrics.diversity import caption_diversity
from pipeline.metrics.reader import leave_one_out, reader_statistics


def human_reference(texts: Sequence[str], tokens: Tensor, prepared: Prepared, rows: np.ndarray) -> dict[str, Any]:
    """Return `diversity`, `reader` and `chair` of one caption of each image `rows` (M,), as text and `tokens` (M, T).

    `human_…` holds the same statistics of human captions. `human_diversity` depends on the number of captions, so it
    uses the first caption of each image. The others use each caption against the image's other captions; they need an
    image with two captions.
    """
    vocabulary = prepared.vocabulary
    words = [tokenise(text) if vocabulary.reads_text else text.split() for text in texts]
    people = [prepared.words(row) for row in rows]
    alone, others = leave_one_out(people)
    annotated = prepared.annotated_objects(rows)
    of_alone = [
        names for names, words in zip(annotated, people, strict=bool(annotated)) if len(words) > 1 for _ in words
    ]
    first = [" ".join(words[0]) for words in people]
    return {
        "diversity": caption_diversity(texts, tokens.tolist(), vocabulary.unk),
        "human_diversity": caption_diversity(first, prepared.references(rows)[:, 0].tolist(), vocabulary.unk),
        "reader": reader_statistics(words, people),
        "chair": chair(words, people, annotated),
        **(
            {"human_reader": reader_statistics(alone, others), "human_chair": chair(alone, others, of_alone)}
            if alone
            else {}
        ),
    }
