"""Comparison of caption files: paired differences with intervals, verdicts, and the agreement of judges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import NormalDist, fmean

import numpy as np

from pipeline.analysis.bootstrap import compute_interval
from pipeline.analysis.comparison import adjust_p_values, compute_two_sided_p_value
from pipeline.errors import UserError
from saywhich.judging.caption_scores import HARD_RECALL, KINDS, ScoreKey
from saywhich.judging.judgement import JudgedRow, Judgement
from saywhich.judging.retrieval_scores import flatten

LEVEL = 0.05  # family-wise error rate of all differences of a pair
OPEN = "open"
MAX_IMAGES = 10**9  # a difference that needs more images has no number of decisive images
ROUNDING = 1e-9  # a smaller difference counts as 0, as in `compute_two_sided_p_value`


@dataclass(frozen=True)
class ScoreDifference:
    """One score of the second captions minus the first captions' score, over the same images and resamples.

    `p` is two-sided and Holm-adjusted over the pair's differences. `verdict` is better, worse or open; for a score
    without a better direction it is higher, lower or open. A score of the whole set of captions has no interval, no `p`
    and the verdict "". `needed` is the number of images that would decide an open difference, or None. That number
    assumes the same difference and variance per image (`count_decisive_images`).
    """

    key: ScoreKey
    first: float
    second: float
    interval: tuple[float, float] | None = None
    p: float | None = None
    verdict: str = ""
    needed: int | None = None

    @property
    def value(self) -> float:
        return self.second - self.first


@dataclass(frozen=True)
class JudgeAgreement:
    """Agreement of two judges on the better captions of an image, in %.

    `images` is the number of images whose ranks differ between the caption files by both judges; no others count.
    `agree` is NaN without such images.
    """

    judges: tuple[str, str]
    agree: float
    images: int


@dataclass(frozen=True)
class RewardGap:
    """Mean gains in the recall `score`, by the judges that rewarded the training and by the other judges.

    `interval` is the 95 % interval of `value`, the difference of the two gains.
    """

    score: str
    rewarded: float
    others: float
    interval: tuple[float, float]

    @property
    def value(self) -> float:
        return self.rewarded - self.others

    @property
    def differs(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


@dataclass(frozen=True)
class PairComparison:
    """Comparison of the second captions with the first."""

    first: JudgedRow
    second: JudgedRow
    differences: Sequence[ScoreDifference]
    agreements: Sequence[JudgeAgreement]
    reward_gap: RewardGap | None

    def difference(self, judge: str, name: str) -> ScoreDifference:
        """Return the difference of a score; `judge` is "" for scores that no judge gives."""
        return next(each for each in self.differences if each.key == (judge, name))


@dataclass(frozen=True)
class CaptionComparison:
    """Comparisons of caption files of the same images, each with the first file."""

    judgement: Judgement
    pairs: Sequence[PairComparison]


def check_comparison(captions: int, judges: Sequence[object], rewarded_by: Sequence[str]) -> None:
    """Raise UserError, before any judging, for fewer than two files, or for a rewarding judge that is not given.

    A judge may be named as it is given, or by its name in the table: a folder's last part, or the text before “=”.
    Names are not checked here if a judge is given as an object.
    """
    if captions < 2:
        raise UserError(f"compare: expected two caption files or more, found {captions}; give two or more")
    judge_names = [judge for judge in judges if isinstance(judge, str)]
    folders = [Path(each).resolve().name for each in judge_names if Path(each).is_dir()]
    names = {*judge_names, *(each.partition("=")[0] for each in judge_names), *folders}
    if len(judge_names) == len(judges) and (unknown := [name for name in rewarded_by if name not in names]):
        raise UserError(f"--rewarded-by {unknown[0]}: is no judge here; give one of {', '.join(judge_names)}")


def compare_rows(judgement: Judgement, rewarded_by: Sequence[str] = ()) -> CaptionComparison:
    """Compare every caption file of a judgement with its first file. `rewarded_by` are judges that rewarded a training.

    Raises UserError for a name in `rewarded_by` that is no judge.
    """
    if unknown := [name for name in rewarded_by if name not in judgement.judges]:
        raise UserError(f"--rewarded-by {unknown[0]}: is no judge here; give one of {', '.join(judgement.judges)}")
    first, *others = judgement.rows
    return CaptionComparison(judgement, [_compare_pair(judgement, first, other, rewarded_by) for other in others])


def count_decisive_images(images: int, value: float, deviation: float, tests: int) -> int | None:
    """Return the number of images at which a difference with this deviation over `images` would be significant.

    The deviation falls with the square root of the number of images. The level is 0.05 / `tests`, the strictest of
    Holm's levels. Returns None for a difference below 1e-9, which is rounding, and where more than a billion
    images would be needed.
    """
    if abs(value) < ROUNDING:
        return None
    threshold = NormalDist().inv_cdf(1 - LEVEL / 2 / max(tests, 1))
    needed = images * (threshold * deviation / value) ** 2
    return None if needed > MAX_IMAGES else max(math.ceil(needed), images + 1)


def _compare_pair(
    judgement: Judgement, first: JudgedRow, second: JudgedRow, rewarded_by: Sequence[str]
) -> PairComparison:
    keys = [key for key in judgement.keys if key in first.scores and key in second.scores]
    resamples = {
        key: second.resampled[key] - first.resampled[key]
        for key in keys
        if key in first.resampled and key in second.resampled
    }
    values = {key: second.scores[key].value - first.scores[key].value for key in keys}
    p_values = [compute_two_sided_p_value(values[key], resamples[key]) for key in resamples]
    adjusted_p = dict(zip(resamples, adjust_p_values(p_values), strict=True))
    differences = []
    for key in keys:
        first_value, second_value = first.scores[key].value, second.scores[key].value
        if key not in resamples:
            differences.append(ScoreDifference(key, first_value, second_value))
            continue
        verdict, needed = OPEN, None
        if adjusted_p[key] < LEVEL:
            verdict = _decide_verdict(values[key], KINDS[key.name].better)
        else:
            deviation = float(resamples[key].std(ddof=1))
            needed = count_decisive_images(len(judgement.files), values[key], deviation, len(resamples))
        differences.append(
            ScoreDifference(
                key, first_value, second_value, compute_interval(resamples[key]), adjusted_p[key], verdict, needed
            )
        )
    agreements = [_measure_agreement(judgement, first, second, judges) for judges in combinations(judgement.judges, 2)]
    gap = _measure_reward_gap(judgement, values, resamples, rewarded_by) if rewarded_by else None
    return PairComparison(first, second, differences, agreements, gap)


def _decide_verdict(value: float, better: int) -> str:
    if not better:
        return "higher" if value > 0 else "lower"
    return "better" if value * better > 0 else "worse"


def _measure_agreement(
    judgement: Judgement, first: JudgedRow, second: JudgedRow, judges: tuple[str, str]
) -> JudgeAgreement:
    signs = []
    for judge in judges:
        ranks = [_average_ranks(row, judge, len(judgement.files)) for row in (first, second)]
        signs.append(np.sign(ranks[0] - ranks[1]))
    ranks_differ = (signs[0] != 0) & (signs[1] != 0)
    agree = 100.0 * float((signs[0] == signs[1])[ranks_differ].mean()) if ranks_differ.any() else math.nan
    return JudgeAgreement(judges, agree, int(ranks_differ.sum()))


def _average_ranks(row: JudgedRow, judge: str, images: int) -> np.ndarray:
    """Return the mean rank among all images of each image's captions, (M,)."""
    owners = flatten(row.captions)[1]
    return np.bincount(owners, row.ranks[judge].among_all, images) / np.bincount(owners, minlength=images)


def _measure_reward_gap(
    judgement: Judgement,
    values: dict[ScoreKey, float],
    resamples: dict[ScoreKey, np.ndarray],
    rewarded_by: Sequence[str],
) -> RewardGap | None:
    """Return the mean gains by the rewarding judges and by the others; None where one of the two groups is empty."""
    score = HARD_RECALL if all(ScoreKey(judge, HARD_RECALL) in resamples for judge in judgement.judges) else "R@1"
    groups = [
        [ScoreKey(judge, score) for judge in judgement.judges if (judge in rewarded_by) == rewarded]
        for rewarded in (True, False)
    ]
    if not all(groups):
        return None
    gains = [fmean(values[key] for key in group) for group in groups]
    resampled_gains = [np.mean([resamples[key] for key in group], axis=0) for group in groups]
    return RewardGap(score, gains[0], gains[1], compute_interval(resampled_gains[0] - resampled_gains[1]))
