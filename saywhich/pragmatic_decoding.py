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
DISTRACTORS = 7  # default number of distractors, as in evaluation
NEEDS_AMONG = "pragmatic decoding needs photos to compare with: give among"
Features = TypeVar("Features", covariant=True)


@dataclass(frozen=True)
class PragmaticDecoding:
    """Pragmatic decoding with the weight α = `alpha`, against at most `distractors` photos.

    `posterior` names the agent whose posterior weighs the words: the speaker by Bayes' rule, or the listener.
    """

    alpha: float
    distractors: int = DISTRACTORS
    posterior: str = SPEAKER

    def __post_init__(self) -> None:
        """Raise UserError for numbers out of range."""
        if not 0 <= self.alpha < math.inf:
            raise UserError(f"--pragmatic {self.alpha:g}: give a finite weight of 0 or more, such as 1")
        if self.distractors < 1:
            raise UserError(f"--distractors {self.distractors}: give 1 or more")
        if self.posterior not in (SPEAKER, LISTENER):
            raise UserError(f"posterior {self.posterior}: give {SPEAKER} or {LISTENER}")

    @property
    def width(self) -> int:
        """Return the number of photos for which the speaker computes distributions per captioned photo."""
        return 1 + self.distractors if self.posterior == SPEAKER else 1


class TextListener(Protocol):
    """The text side of a listener whose posterior weighs the words."""

    temperature: float  # cosines divided by it are the logits of the listener's training

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings (N, H) float32 of length 1 of N captions."""
        ...


@dataclass(frozen=True)
class PragmaticGallery(Generic[Features]):
    """Gallery `among` of N photos, from which distractors are chosen; `read` returns the features of the given rows.

    `listener` computes the posterior "listener"; None stands for the trained model's own listener.
    """

    decoding: PragmaticDecoding
    among: EncodedPhotos
    read: Callable[[Sequence[int]], Features]
    listener: TextListener | None = None

    def find_nearest(self, vectors: Tensor, contents: Sequence[str]) -> Tensor:
        """Return the rows (M, K) of the distractors of M photos, nearest first, padded with −1.

        `vectors` (M, H) are the listener's embeddings of the photos, and `contents` the digests of the prepared photos.
        A gallery photo with the same digest as a photo is no distractor of it.
        """
        from pipeline.evaluation.pragmatic_captions import find_nearest_among

        count = min(self.decoding.distractors, len(self.among))
        return find_nearest_among(vectors, self.among.vectors, self.among.find_copies(contents), count)
