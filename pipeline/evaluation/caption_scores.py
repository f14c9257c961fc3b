"""Settings of reranking: the listener and the score that choose one of an image's sampled captions."""

from __future__ import annotations

from typing import NamedTuple

MARGIN = "margin"  # the similarity of caption and image minus the highest similarity to another image
SIMILARITY = "similarity"  # the similarity alone, which needs no other image
OWN = "own"  # the listener that was trained with the speaker


class Reranking(NamedTuple):
    """Choice of one of `samples` captions, drawn with logits divided by `temperature`, by the `score` of a listener.

    `listener`: OWN, or the name of a pretrained listener.
    """

    samples: int
    temperature: float = 1.0
    score: str = MARGIN
    listener: str = OWN
