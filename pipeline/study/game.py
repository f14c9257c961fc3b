"""The game of `saywhich serve`: a person and the model's listener each choose the photo that a caption describes."""

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
from pipeline.study.majority import compute_binomial_p_value
from pipeline.study.rater_answers import OpenRecord, Seconds, Text, iterate_answers

GAME = "play"  # the value of `study` in rounds of the game


class GameRound(OpenRecord):
    """Round as the page saves it; `chosen` is the person's choice, and `listener` is the listener's choice."""

    shown: Annotated[list[Text], Field(min_length=2, max_length=1000)]
    right: Text
    chosen: Text
    listener: Text
    model: Line
    seconds: Seconds


@dataclass(frozen=True)
class GameResult:
    """Rounds with captions of one model; `person` and `listener` (R,) bool: whether each chose the right photo."""

    model: str
    photos: float  # mean number of photos in a round
    person: np.ndarray
    listener: np.ndarray
    seconds: float  # median time of the person for a round

    @property
    def p(self) -> float:
        """Return McNemar's exact p-value; the null hypothesis is that person and listener are right equally often."""
        person_only, listener_only = (self.person & ~self.listener).sum(), (self.listener & ~self.person).sum()
        return compute_binomial_p_value(int(person_only), int(person_only + listener_only))


def read_game(paths: Sequence[Path]) -> list[GameResult]:
    """Read the rounds in `paths`, by model; [] without an answer, or where the first answer is not a round of the game.

    The page saves all rounds so far each time, so equal rounds, such as from an earlier file, count once. Raises
    UserError for a later answer that is not a round, for an invalid round, and for a file that cannot be read.
    """
    seen: set[str] = set()
    rounds_by_model: dict[str, list[GameRound]] = defaultdict(list)
    for where, answer in iterate_answers(paths):
        if not isinstance(answer, dict) or answer.get("study") != GAME:
            if rounds_by_model:
                raise UserError(f"{where}: not a round of the game, unlike earlier answers; read this file separately")
            return []
        round_ = parse_record(answer, GameRound, where, "give the file that the page saved")
        if not {round_.right, round_.chosen, round_.listener} <= set(round_.shown):
            raise UserError(
                f"{where}: not a round of the game as the page saves it: right, chosen or listener is not in shown; "
                "give the file that the page saved"
            )
        if (content := json.dumps(answer, sort_keys=True)) not in seen:
            seen.add(content)
            rounds_by_model[round_.model].append(round_)
    return [_summarise_rounds(model, rounds) for model, rounds in rounds_by_model.items()]


def compute_success_rate(right: np.ndarray) -> tuple[float, float, float]:
    """Return the percentage of `right` (R,), and the ends of its exact 95 % interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    ends = binomtest(int(right.sum()), len(right)).proportion_ci(0.95, "exact")
    return 100 * float(right.mean()), 100 * float(ends.low), 100 * float(ends.high)


def _summarise_rounds(model: str, rounds: Sequence[GameRound]) -> GameResult:
    def mark_right(field: str) -> np.ndarray:
        return np.array([getattr(round_, field) == round_.right for round_ in rounds])

    photos = float(np.mean([len(round_.shown) for round_ in rounds]))
    seconds = float(np.median([round_.seconds for round_ in rounds]))
    return GameResult(model, photos, mark_right("chosen"), mark_right("listener"), seconds)
