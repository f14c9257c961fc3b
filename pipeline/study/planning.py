"""Power analysis: the raters and pairs needed to distinguish two methods."""

from __future__ import annotations

from dataclasses import dataclass

LEVEL, POWER = 0.05, 0.8


@dataclass(frozen=True)
class RatingPlan:
    """A plan with `raters` votes per pair: the majority's accuracies, the pairs for `POWER`, and the votes in all."""

    raters: int
    accuracies: tuple[float, float]
    pairs: int

    @property
    def votes(self) -> int:
        """Return the number of all votes."""
        return 2 * self.raters * self.pairs


def majority_accuracy(skill: float, raters: int, correlation: float = 0.0) -> float:
    """Return the probability that the majority of `raters` is right, a tie counted half, for single accuracy `skill`.

    `correlation` is the correlation of two votes on one pair: 0, or that of a beta-binomial distribution.
    """
    from scipy.stats import betabinom, binom

    if correlation > 0:
        strength = (1 - correlation) / correlation
        votes = betabinom(raters, skill * strength, (1 - skill) * strength)
    else:
        votes = binom(raters, skill)
    return float(votes.sf(raters / 2) + (votes.pmf(raters // 2) / 2 if raters % 2 == 0 else 0))


def skill_of(accuracy: float, raters: int, correlation: float = 0.0) -> float:
    """Return the single rater's accuracy at which the majority has `accuracy`: the inverse of `majority_accuracy`."""
    from scipy.optimize import brentq

    return float(brentq(lambda skill: majority_accuracy(skill, raters, correlation) - accuracy, 1e-6, 1 - 1e-6))


def power(left: float, right: float, pairs: int) -> float:
    """Return the power of McNemar's test for two accuracies on the same `pairs` with independent errors.

    Connor 1987, Sample size for testing differences in proportions for the paired-sample design.
    """
    from scipy.stats import norm

    gap, discordant = abs(left - right), left * (1 - right) + right * (1 - left)
    reach = gap * pairs**0.5 - norm.ppf(1 - LEVEL / 2) * discordant**0.5
    return float(norm.cdf(reach / (discordant - gap**2) ** 0.5))


def pairs_needed(left: float, right: float) -> int:
    """Return the smallest number of pairs with a power of at least `POWER`."""
    from scipy.stats import norm

    gap, discordant = abs(left - right), left * (1 - right) + right * (1 - left)
    ends = norm.ppf(1 - LEVEL / 2) * discordant**0.5 + norm.ppf(POWER) * (discordant - gap**2) ** 0.5
    return int(-(-((ends / gap) ** 2) // 1))


def plans(
    left: float, right: float, raters: int, correlation: float, numbers: tuple[int, ...] = (1, 3, 5, 7, 9)
) -> list[RatingPlan]:
    """Return plans for several numbers of raters per pair, given the majority accuracies of `raters` raters."""
    skills = skill_of(left, raters, correlation), skill_of(right, raters, correlation)
    rating_plans = []
    for number in numbers:
        accuracies = (
            majority_accuracy(skills[0], number, correlation),
            majority_accuracy(skills[1], number, correlation),
        )
        rating_plans.append(RatingPlan(number, accuracies, pairs_needed(*accuracies)))
    return rating_plans
