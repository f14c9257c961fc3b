"""Statistics of votes: majorities with intervals, exact tests, agreement of raters, Bradley-Terry scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.bootstrap import compute_interval, draw_resamples
from pipeline.study.rater_answers import Vote

MAX_ITERATIONS = 10_000  # largest number of iterations for Bradley-Terry scores


@dataclass(frozen=True)
class ShareEstimate:
    """Share in percent, difference of shares in points, or score, with its 95 % interval over resampled images.

    `drawn` (resamples,) are the values in the resamples, NaN in resamples without a vote. The interval omits NaN.
    """

    value: float
    interval: tuple[float, float]
    drawn: np.ndarray


@dataclass(frozen=True)
class MajorityResult:
    """Votes on one method's captions of S images.

    `votes` and `first` (S,) count all votes and the votes for the first option, by image.
    """

    method: str
    votes: np.ndarray
    first: np.ndarray
    weights: np.ndarray  # (resamples, S): counts of each image in each resample

    @property
    def majority(self) -> np.ndarray:
        """Return the majorities (S,): 1 for the first option, 0 for the second, ½ for a tie, NaN without votes."""
        with np.errstate(invalid="ignore"):
            return np.where(self.votes > 0, (np.sign(2 * self.first - self.votes) + 1) / 2, np.nan)

    @property
    def images(self) -> int:
        """Return the number of images with votes."""
        return int((self.votes > 0).sum())

    @property
    def by_majority(self) -> ShareEstimate:
        """Return the share of images whose majority is for the first option, ties as ½: the paper's accuracy."""
        voted = self.votes > 0
        return _estimate_share(self.majority[voted], np.ones(self.images), self.weights[:, voted])

    @property
    def by_vote(self) -> ShareEstimate:
        """Return the share of single votes for the first option."""
        return _estimate_share(self.first, self.votes, self.weights)

    @property
    def p(self) -> float:
        """Return the two-sided p-value of the exact binomial test of majorities against ½, without ties."""
        decided = self.majority[self.majority != 0.5]
        return compute_binomial_p_value(int(np.nansum(decided)), int(np.isfinite(decided).sum()))

    @property
    def intraclass_correlation(self) -> float:
        """Return the correlation of two votes on one image, estimated from pairs of votes; each image counts once.

        NaN where no image has two votes, or where all votes on such images are equal. At a value above 0, some images
        are harder than others, so that another rater adds less information than another image.
        """
        multiple = self.votes > 1
        votes, first = self.votes[multiple], self.first[multiple]
        mean = np.mean(first / votes) if multiple.any() else 0.0
        if mean in (0, 1):
            return float("nan")
        both = np.mean(first * (first - 1) / (votes * (votes - 1)))
        return float((both - mean**2) / (mean * (1 - mean)))


def count_majorities(
    votes: Sequence[Vote], methods: Sequence[str], resamples: int = 1000, seed: int = 0
) -> list[MajorityResult]:
    """Count the votes by image, for each method with votes; all results have the same order of images and resamples."""
    subjects = {subject: n for n, subject in enumerate(sorted({vote.question.subject for vote in votes}))}
    weights = draw_resamples(len(subjects), resamples, seed) if subjects else np.empty((resamples, 0))
    counts = {method: np.zeros((2, len(subjects))) for method in methods}
    for vote in votes:
        for method in vote.question.methods:
            if method in counts:
                counts[method][:, subjects[vote.question.subject]] += 1, vote.first
    return [MajorityResult(method, both[0], both[1], weights) for method, both in counts.items() if both[0].any()]


def compute_majority_difference(left: MajorityResult, right: MajorityResult) -> tuple[ShareEstimate, float]:
    """Return the difference of two majorities' shares in points over equal resamples, and McNemar's exact p-value.

    The p-value counts the images on which `left` has the greater `majority`, and those on which `right` has it.
    """
    first_share, second_share = left.by_majority, right.by_majority
    drawn = first_share.drawn - second_share.drawn
    gap = left.majority - right.majority
    wins, losses = int(np.nansum(gap > 0)), int(np.nansum(gap < 0))
    estimate = ShareEstimate(first_share.value - second_share.value, _compute_interval(drawn), drawn)
    return estimate, compute_binomial_p_value(wins, wins + losses)


def compute_binomial_p_value(successes: int, trials: int) -> float:
    """Return the two-sided p-value of the exact binomial test against ½; 1 without trials."""
    from scipy.stats import binomtest

    return float(binomtest(successes, trials, 0.5).pvalue) if trials else 1.0


def compute_agreement(votes: Sequence[Vote]) -> float:
    """Return Krippendorff's α (nominal) of the options that raters chose.

    NaN where no question has two votes, or where all votes have one code. The codes of options are in alphabetical
    order, independent of the right option. With the codes right and wrong, α would be near 0 for raters with
    independent errors in one of ten questions.
    """
    import krippendorff

    counts: dict[str, list[int]] = {}
    for vote in votes:
        option = vote.question.options[not vote.first]
        counts.setdefault(vote.question.name, [0, 0])[sorted(vote.question.options).index(option)] += 1
    table = np.array([both for both in counts.values() if sum(both) > 1])
    if not len(table) or (table.sum(0) == 0).any():
        return float("nan")
    return float(krippendorff.alpha(value_counts=table, level_of_measurement="nominal"))


def fit_bradley_terry(wins: np.ndarray) -> np.ndarray:
    """Return scores (…, M), the last score 0, from `wins` (…, M, M), the counts of row chosen over column.

    P(i over j) = 1 / (1 + exp(s_j − s_i)). Half a win is added in both directions for each compared pair, so that a
    method that always wins has a finite score. A method without comparisons has the score NaN; all scores are
    NaN where the last method has none. The algorithm is equation 3 of Hunter 2004, MM algorithms for generalized
    Bradley-Terry models.
    """
    comparisons = wins + wins.swapaxes(-1, -2)
    wins = wins + 0.5 * (comparisons > 0)
    games, total_wins = wins + wins.swapaxes(-1, -2), wins.sum(-1)
    strength, has_comparisons = np.ones(total_wins.shape), total_wins > 0
    for _ in range(MAX_ITERATIONS):
        previous = strength
        expected = (games / (strength[..., :, None] + strength[..., None, :])).sum(-1)
        strength = np.divide(total_wins, expected, out=np.ones(total_wins.shape), where=has_comparisons)
        strength = strength / np.exp(np.log(strength).mean(-1, keepdims=True))
        if np.allclose(strength, previous, rtol=1e-10, atol=0):
            break
    scores = np.where(has_comparisons, np.log(strength), np.nan)
    return scores - scores[..., -1:]


def estimate_preferences(results: Sequence[MajorityResult]) -> Mapping[str, ShareEstimate]:
    """Return Bradley-Terry scores of methods from single votes against one reference method, whose score is 0.

    The mapping is empty without results.
    """
    if not results:
        return {}
    size = len(results) + 1  # with the reference method
    wins = np.zeros((1 + len(results[0].weights), size, size))
    for n, result in enumerate(results):
        for cell, counts in (((n, -1), result.first), ((-1, n), result.votes - result.first)):
            wins[:, *cell] = np.concatenate([[counts.sum()], result.weights @ counts])
    scores = fit_bradley_terry(wins)
    return {
        result.method: ShareEstimate(float(scores[0, n]), _compute_interval(scores[1:, n]), scores[1:, n])
        for n, result in enumerate(results)
    }


def _estimate_share(first: np.ndarray, votes: np.ndarray, weights: np.ndarray) -> ShareEstimate:
    """Return 100 · Σ first / Σ votes over images (S,), with its value in each resample."""
    total = weights @ votes
    drawn = np.divide(100 * (weights @ first), total, out=np.full(len(total), np.nan), where=total > 0)
    return ShareEstimate(float(100 * first.sum() / votes.sum()), _compute_interval(drawn), drawn)


def _compute_interval(drawn: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval over the resamples that have a value."""
    return compute_interval(drawn[np.isfinite(drawn)])
