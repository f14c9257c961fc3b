"""Gains of captions by the reward and by independent judges, and the captions on which they disagree most."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.analysis.bootstrap import compute_interval
from pipeline.errors import UserError
from saywhich.judging.caption_files import Source
from saywhich.judging.caption_scores import HARD_RECALL, ScoreKey
from saywhich.judging.judge_sources import open_judge
from saywhich.judging.judgement import JudgedRow, Judgement, JudgeOptions, judge_captions
from saywhich.judging.photo_vectors import CaptionJudge
from saywhich.judging.retrieval_scores import flatten
from saywhich.reward_hacking.word_drift import NgramGrowth, find_grown_ngrams

MAX_DISAGREEMENTS = 12  # images that are listed
SCORES = (HARD_RECALL, "R@1")

Interval = tuple[float, float]


@dataclass(frozen=True)
class JudgeGain:
    """Gain of a training by one judge's recall, in points, and its share of the gain by the training's reward.

    `share` is in %. It is None for the reward itself, and where the 95 % interval of the reward's gain does not lie
    above 0.
    """

    judge: str
    score: str
    gain: float
    interval: Interval
    share: float | None = None
    share_interval: Interval | None = None


@dataclass(frozen=True)
class JudgeDisagreement:
    """An image with a caption of each set, and its best ranks by the reward and by a judge, before and after."""

    photo: Path
    before: str
    after: str
    reward_ranks: tuple[int, int]
    judge_ranks: tuple[int, int]


@dataclass(frozen=True)
class RewardHacking:
    """Gains by each judge, n-grams whose share grew, and captions on which the reward and a judge disagree.

    For each recall, the reward's gain comes first.
    """

    reward: str
    judges: Sequence[str]
    images: int
    gains: Sequence[JudgeGain]
    ngram_growth: Sequence[NgramGrowth]
    disagreements: Sequence[JudgeDisagreement]  # by the reward and the first judge
    notes: Sequence[str]

    def gain(self, judge: str, score: str) -> JudgeGain:
        """Return the gain by a judge in a recall."""
        return next(each for each in self.gains if (each.judge, each.score) == (judge, score))

    def record(self) -> dict[str, Any]:
        """Return all numbers as values of JSON."""
        return {
            "reward": self.reward,
            "judges": list(self.judges),
            "images": self.images,
            "gains": [vars(each) for each in self.gains],
            "ngrams": [
                {"words": " ".join(each.words), "before": each.before, "after": each.after}
                for each in self.ngram_growth
            ],
            "disagreements": [{**vars(each), "photo": each.photo.name} for each in self.disagreements],
            "notes": list(self.notes),
        }


def measure_hacking(
    before: Source, after: Source, images: str | Path, reward: str, options: JudgeOptions
) -> RewardHacking:
    """Judge captions before and after a training, by the training's reward and by the judges of `options`.

    Raises UserError as `judge_captions` does, where the reward is also an independent judge, and without an
    independent judge.
    """
    if not options.judges or any(_is_same(reward, judge) for judge in options.judges):
        raise UserError(f"--judge: give judges other than the reward {reward}")
    try:
        judge = open_judge(reward)
    except UserError as error:
        raise UserError(str(error).replace("--judge", "--reward")) from None
    all_judges = replace(options, judges=(judge, *options.judges))
    return summarise_hacking(judge_captions([before, after], images, None, all_judges))


def summarise_hacking(judgement: Judgement) -> RewardHacking:
    """Return the gains and changes of a judgement of two rows; its first judge is the reward."""
    first, second = judgement.rows
    reward, *others = judgement.judges
    gains = [
        each
        for score in SCORES
        if all(ScoreKey(judge, score) in first.resampled for judge in judgement.judges)
        for each in _compute_gains(first, second, reward, others, score)
    ]
    ngram_growth = find_grown_ngrams(flatten(first.captions)[0], flatten(second.captions)[0])
    return RewardHacking(
        reward,
        others,
        len(judgement.files),
        gains,
        ngram_growth,
        _find_disagreements(judgement, reward, others[0]),
        judgement.notes,
    )


def _is_same(reward: str, judge: str | CaptionJudge) -> bool:
    """Return whether two names are equal or paths of one folder, such as clip and ./clip/."""
    if not isinstance(judge, str):
        return False
    return reward == judge or (os.path.isdir(reward) and os.path.isdir(judge) and os.path.samefile(reward, judge))


def _compute_gains(
    first: JudgedRow, second: JudgedRow, reward: str, others: Sequence[str], score: str
) -> list[JudgeGain]:
    def compute_difference(judge: str) -> tuple[float, np.ndarray]:
        key = ScoreKey(judge, score)
        return second.scores[key].value - first.scores[key].value, second.resampled[key] - first.resampled[key]

    reward_gain, reward_resamples = compute_difference(reward)
    reward_interval = compute_interval(reward_resamples)
    gains = [JudgeGain(reward, score, reward_gain, reward_interval)]
    for judge in others:
        gain, judge_resamples = compute_difference(judge)
        if reward_interval[0] <= 0:
            gains.append(JudgeGain(judge, score, gain, compute_interval(judge_resamples)))
            continue
        positive = reward_resamples > 0  # few resamples have no gain
        shares = compute_interval(100.0 * judge_resamples[positive] / reward_resamples[positive])
        gains.append(
            JudgeGain(judge, score, gain, compute_interval(judge_resamples), 100.0 * gain / reward_gain, shares)
        )
    return gains


def _find_disagreements(judgement: Judgement, reward: str, judge: str) -> list[JudgeDisagreement]:
    """Return the images whose rank improved most by the reward and worsened by the judge, at most MAX_DISAGREEMENTS.

    Both changes are log-ratios of best ranks among all images, and the smaller one counts.
    """
    first, second = judgement.rows
    ranks = [[row.best_ranks(name) for row in (first, second)] for name in (reward, judge)]
    rise, fall = np.log(ranks[0][0] / ranks[0][1]), np.log(ranks[1][1] / ranks[1][0])
    disagreement = np.minimum(rise, fall)
    order = [
        row for row in np.argsort(-disagreement, kind="stable")[:MAX_DISAGREEMENTS].tolist() if disagreement[row] > 0
    ]
    return [
        JudgeDisagreement(
            judgement.files[row],
            first.captions[row][0],
            second.captions[row][0],
            *((int(before[row]), int(after[row])) for before, after in ranks),
        )
        for row in order
    ]
