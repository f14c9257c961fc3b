"""The game of `saywhich serve`: a person and the model's listener each pick the photo that a caption describes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from pipeline.errors import UserError
from pipeline.runtime.records import Line, parse_record
from pipeline.study.majority import binomial
from pipeline.study.rater_answers import OpenRecord, Seconds, Text, locate_answers

GAME = "play"  # the value of `study` in rounds of the game


class GameRound(OpenRecord):
    """A round as the page saves it."""

    shown: Annotated[list[Text], Field(min_length=2, max_length=1000)]
    right: Text
    chosen: Text
    listener: Text
    model: Line
    seconds: Seconds


@dataclass(frozen=True)
class GameResult:
    """The rounds with captions of one model; `person` and `listener` (R,) bool: whether each picked the right photo."""

    model: str
    photos: float  # mean number in a round
    person: np.ndarray
    listener: np.ndarray
    seconds: float  # median time of the person

    @property
    def p(self) -> float:
        """Return McNemar's exact p-value; the null hypothesis is that person and listener are right equally often."""
        ahead, behind = (self.person & ~self.listener).sum(), (self.listener & ~self.person).sum()
        return binomial(int(ahead), int(ahead + behind))


def read_game(paths: Sequence[Path]) -> list[GameResult]:
    """Read the rounds in `paths`, by model; [] without an answer, or where the first is not a round of the game.

    The page saves all rounds so far each time, so equal rounds, such as those of an earlier file, count once.
    Raises UserError for a later answer that is not a round, and for an invalid round.
    """
    known: set[str] = set()
    of_model: dict[str, list[GameRound]] = defaultdict(list)
    for where, answer in locate_answers(paths):
        if not isinstance(answer, dict) or answer.get("study") != GAME:
            if of_model:
                raise UserError(f"{where}: not a round of the game, as those before it are; read it by itself")
            return []
        played = parse_record(answer, GameRound, where, "not a round of the game as the page saves it")
        if not {played.right, played.chosen, played.listener} <= set(played.shown):
            raise UserError(
                f"{where}: not a round of the game as the page saves it: right, chosen or listener is not in shown; "
                "give the file that the page saved"
            )
        if (content := json.dumps(answer, sort_keys=True)) not in known:
            known.add(content)
            of_model[played.model].append(played)
    return [_summarise_rounds(model, rounds) for model, rounds in of_model.items()]


def success_rate(right: np.ndarray) -> tuple[float, float, float]:
    """Return the percentage of `right` (R,), and the ends of its exact 95 % interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    ends = binomtest(int(right.sum()), len(right)).proportion_ci(0.95, "exact")
    return 100 * float(right.mean()), 100 * float(ends.low), 100 * float(ends.high)


def _summarise_rounds(model: str, rounds: Sequence[GameRound]) -> GameResult:
    def share(picker: str) -> np.ndarray:
        return np.array([getattr(each, picker) == each.right for each in rounds])

    shown = float(np.mean([len(each.shown) for each in rounds]))
    seconds = float(np.median([each.seconds for each in rounds]))
    return GameResult(model, shown, share("chosen"), share("listener"), seconds)
