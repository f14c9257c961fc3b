"""Power analysis: the raters and pairs needed to distinguish two methods."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import UserError

LEVEL, POWER = 0.05, 0.8
MIN_CORRELATION = 1e-8  # below this value, scipy's beta-binomial loses digits, and the binomial is as good


@dataclass(frozen=True)
class RatingPlan:
    """Plan of `raters` votes per pair and method: the majorities' accuracies, and the number of pairs for `POWER`."""

    raters: int
    accuracies: tuple[float, float]
    pairs: int

    @property
    def votes(self) -> int:
        """Return the number of votes on the captions of both methods."""
        return 2 * self.raters * self.pairs


def compute_majority_accuracy(skill: float, raters: int, correlation: float = 0.0) -> float:
    """Return the probability that the majority of `raters` is right; a tie counts ½.

    `skill` is the accuracy of a single rater. `correlation` is the correlation of two votes on one pair: 0, or the
    correlation of a beta-binomial distribution.
    """
    from scipy.stats import betabinom, binom

    if correlation > MIN_CORRELATION:
        strength = (1 - correlation) / correlation
        votes = betabinom(raters, skill * strength, (1 - skill) * strength)
    else:
        votes = binom(raters, skill)
    return float(votes.sf(raters / 2) + (votes.pmf(raters // 2) / 2 if raters % 2 == 0 else 0))


def find_skill(accuracy: float, raters: int, correlation: float = 0.0) -> float:
    """Invert `compute_majority_accuracy`: return the single rater's accuracy at which the majority has `accuracy`.

    Raises UserError for an accuracy that needs a skill of less than 1e-6 or more than 1 − 1e-6.
    """
    from scipy.optimize import brentq

    low, high = 1e-6, 1 - 1e-6
    if (
        not compute_majority_accuracy(low, raters, correlation)
        <= accuracy
        <= compute_majority_accuracy(high, raters, correlation)
    ):
        raise UserError(
            f"raters: expected an accuracy that a majority of {raters} can have, got {100 * accuracy:.10g} %; give one "
            "further from 0 and 100"
        )
    return float(brentq(lambda skill: compute_majority_accuracy(skill, raters, correlation) - accuracy, low, high))


def compute_power(left: float, right: float, pairs: int) -> float:
    """Return the power of McNemar's test for two accuracies on the same `pairs` with independent errors.

    The formula is by Connor 1987, Sample size for testing differences in proportions for the paired-sample design.
    """
    from scipy.stats import norm

    gap, discordant = abs(left - right), left * (1 - right) + right * (1 - left)
    margin = gap * pairs**0.5 - norm.ppf(1 - LEVEL / 2) * discordant**0.5
    return float(norm.cdf(margin / (discordant - gap**2) ** 0.5))


def count_pairs_needed(left: float, right: float) -> int:
    """Return the smallest number of pairs with a power of at least `POWER`. Raises UserError for equal accuracies."""
    from scipy.stats import norm

    gap, discordant = abs(left - right), left * (1 - right) + right * (1 - left)
    if gap == 0:
        raise UserError(
            f"raters: both majorities are right in {100 * left:.10g} % of pairs, and no number of pairs distinguishes "
            "them; give accuracies further apart or further from 100"
        )
    numerator = norm.ppf(1 - LEVEL / 2) * discordant**0.5 + norm.ppf(POWER) * (discordant - gap**2) ** 0.5
    return int(-(-((numerator / gap) ** 2) // 1))


def make_plans(
    left: float, right: float, raters: int, correlation: float, numbers: tuple[int, ...] = (1, 3, 5, 7, 9)
) -> list[RatingPlan]:
    """Return a plan for each of `numbers` raters per pair, given the majority accuracies of `raters` raters.

    Raises UserError as `find_skill` and `count_pairs_needed` do.
    """
    skills = find_skill(left, raters, correlation), find_skill(right, raters, correlation)
    rating_plans = []
    for number in numbers:
        accuracies = (
            compute_majority_accuracy(skills[0], number, correlation),
            compute_majority_accuracy(skills[1], number, correlation),
        )
        rating_plans.append(RatingPlan(number, accuracies, count_pairs_needed(*accuracies)))
    return rating_plans
