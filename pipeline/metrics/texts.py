"""METEOR and SPICE as rewards: they read text, and run as Java programs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.metrics import java, shared_meteor

TextMetric = Literal["METEOR", "SPICE"]
KEPT = 2**16  # captions whose scores are cached


class Texts:
    """Scores captions as text against their images' references, both tokenised; each different caption once.

    METEOR is one process, started by the first call (a grid's shared one where there is one), that ends with this
    object. SPICE starts a program at each call, which takes long. `timeout`: seconds that one set of captions may take.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        references: Callable[[int], Sequence[str]],
        timeout: float = 900.0,
    ) -> None:
        """`decode`: the text of a caption's ids; `references`: the human captions of the image in a row."""
        self._decode, self._references, self._timeout = decode, references, timeout
        self._known: dict[tuple[str, int, str], float] = {}
        self._meteor: java.Meteor | shared_meteor.SharedMeteor | None = None

    def score(self, metric: TextMetric, tokens: Tensor, images: Tensor) -> Tensor:
        """(N,) float64, 0 … 1, of captions `tokens` (N, T) of `images` (N,), rows of the prepared data set.

        Raises UserError where the program cannot run.
        """
        asked = [
            (metric, image, self._decode(said)) for image, said in zip(images.tolist(), tokens.tolist(), strict=True)
        ]
        if len(self._known) > KEPT:
            self._known.clear()
        new = [key for key in dict.fromkeys(asked) if key not in self._known]
        if new:
            said, human = [text for *_, text in new], [self._references(image) for _, image, _ in new]
            try:
                self._known.update(zip(new, self._compute(metric, said, human), strict=True))
            except java.NotComputedError as reason:
                raise UserError(f"reward {metric}: {reason}") from None
        return torch.tensor([self._known[key] for key in asked], dtype=torch.float64, device=tokens.device)

    def _compute(self, metric: TextMetric, said: Sequence[str], human: Sequence[Sequence[str]]) -> Sequence[float]:
        if metric == "SPICE":
            return java.spice(said, human, self._timeout)[1]
        if self._meteor is None:
            self._meteor = shared_meteor.meteor(self._timeout)
            weakref.finalize(self, self._meteor.close)
        return self._meteor.score(said, human)[1]


def check(metric: TextMetric) -> None:
    """UserError in one line where the program of `metric` lacks files."""
    try:
        if metric == "SPICE":
            java.spice_jar()
    except java.NotComputedError as reason:
        raise UserError(f"reward SPICE: {reason}") from None
