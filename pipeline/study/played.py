"""The game of `saywhich serve`: who finds the photo that a caption is of, the person or the model's listener."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from pipeline.errors import UserError
from pipeline.runtime.records import Line, as_record
from pipeline.study.answers import Open, Seconds, Text, given_answers
from pipeline.study.majority import binomial

GAME = "play"  # what the game's rounds have as their study


class Round(Open):
    """A round as the page saves it."""

    shown: Annotated[list[Text], Field(min_length=2, max_length=1000)]
    right: Text
    chosen: Text
    listener: Text
    model: Line
    seconds: Seconds


@dataclass(frozen=True)
class Played:
    """All rounds with the captions of one model; `person` and `listener` (R,): whether each found the photo."""

    model: str
    photos: float  # in a round, the mean
    person: np.ndarray
    listener: np.ndarray
    seconds: float  # of the person, the median

    @property
    def p(self) -> float:
        """McNemar's exact p-value against person and listener finding equally many."""
        ahead, behind = (self.person & ~self.listener).sum(), (self.listener & ~self.person).sum()
        return binomial(int(ahead), int(ahead + behind))


def read_played(paths: Sequence[Path]) -> list[Played]:
    """The rounds in `paths`, by model; none where the first answer is not one of the game. Raises UserError."""
    of_model: dict[str, list[Round]] = defaultdict(list)
    for where, answer in given_answers(paths):
        if not isinstance(answer, dict) or answer.get("study") != GAME:
            if of_model:
                raise UserError(f"{where}: not a round of the game, as those before it are; read it by itself")
            return []
        played = as_record(answer, Round, where, "not a round of the game as the page saves it")
        if not {played.right, played.chosen, played.listener} <= set(played.shown):
            raise UserError(f"{where}: not a round of the game as the page saves it")
        of_model[played.model].append(played)
    return [_played(model, rounds) for model, rounds in of_model.items()]


def found(right: np.ndarray) -> tuple[float, float, float]:
    """Percent of `right` (R,), and the ends of its exact 95 % interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    ends = binomtest(int(right.sum()), len(right)).proportion_ci(0.95, "exact")
    return 100 * float(right.mean()), 100 * float(ends.low), 100 * float(ends.high)


def _played(model: str, rounds: Sequence[Round]) -> Played:
    def share(who: str) -> np.ndarray:
        return np.array([getattr(each, who) == each.right for each in rounds])

    shown = float(np.mean([len(each.shown) for each in rounds]))
    seconds = float(np.median([each.seconds for each in rounds]))
    return Played(model, shown, share("chosen"), share("listener"), seconds)
