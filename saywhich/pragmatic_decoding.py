"""Pragmatic decoding of photos: its settings, and the choice of a photo's distractors from a gallery."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pipeline.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from saywhich.encoded_photos import EncodedPhotos

SPEAKER, LISTENER = "speaker", "listener"  # the agent whose posterior weighs the words
DISTRACTORS = 7  # default number of distractors, as at evaluation
NEEDS_AMONG = "pragmatic decoding needs photos to compare with: give among"
Features = TypeVar("Features", covariant=True)


@dataclass(frozen=True)
class PragmaticDecoding:
    """Pragmatic decoding with the weight α = `alpha`, against at most `distractors` photos.

    `posterior` is that of the speaker by Bayes' rule, or that of the listener.
    """

    alpha: float
    distractors: int = DISTRACTORS
    posterior: str = SPEAKER

    def __post_init__(self) -> None:
        """Raise UserError for numbers out of range."""
        if not 0 <= self.alpha < math.inf:
            raise UserError(f"--pragmatic {self.alpha:g}: give a weight of 0 or more, such as 1")
        if self.distractors < 1:
            raise UserError(f"--distractors {self.distractors}: give 1 or more")
        if self.posterior not in (SPEAKER, LISTENER):
            raise UserError(f"posterior {self.posterior}: give {SPEAKER} or {LISTENER}")

    @property
    def width(self) -> int:
        """Return the number of photos whose distributions the speaker computes for the caption of one."""
        return 1 + self.distractors if self.posterior == SPEAKER else 1


class TextListener(Protocol):
    """The text side of a listener whose posterior weighs the words."""

    temperature: float  # cosines divided by it are the logits that the listener was trained with

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings (N, H) float32 of length 1 of N captions."""
        ...


@dataclass(frozen=True)
class PragmaticGallery(Generic[Features]):
    """Gallery of N photos `among` which distractors are chosen; `read` returns the features of the given rows.

    The posterior "listener" is that of `listener`; None: that of the trained model's own listener.
    """

    decoding: PragmaticDecoding
    among: EncodedPhotos
    read: Callable[[Sequence[int]], Features]
    listener: TextListener | None = None

    def nearest(self, vectors: Tensor, contents: Sequence[str]) -> Tensor:
        """Return the rows (M, K) of the distractors of M photos, nearest first; −1: there are fewer.

        `vectors` (M, H) are the listener's embeddings of the photos, and `contents` the digests of the prepared photos.
        Photos with the digest of the photo are no distractors.
        """
        from pipeline.evaluation.pragmatic_captions import nearest_among

        number = min(self.decoding.distractors, len(self.among))
        return nearest_among(vectors, self.among.vectors, self.among.copies(contents), number)
