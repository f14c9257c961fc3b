"""Statistics of votes against numbers computed by hand, and against the skills of synthetic raters."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.study.design import NATURALNESS, RETRIEVAL, StudyQuestion
from pipeline.study.majority import (
    compute_agreement,
    compute_binomial_p_value,
    compute_majority_difference,
    count_majorities,
    estimate_preferences,
    fit_bradley_terry,
)
from pipeline.study.planning import compute_majority_accuracy, compute_power, count_pairs_needed, find_skill, make_plans
from pipeline.study.rater_answers import Vote

PAPER = {"luo": 0.72, "st_multinomial": 0.69, "psst_multinomial": 0.75, "human": 0.85}  # Table 4


def make_votes(subject, methods, *first, task=RETRIEVAL):
    question = StudyQuestion(f"{methods}{subject}", task, "a caption", ("a", "b"), subject, tuple(methods.split("+")))
    return [Vote(question, f"rater {n}", bool(each), 1.0) for n, each in enumerate(first)]


def draw_votes(skills, pairs, raters, seed, task=RETRIEVAL):
    """Draw votes of raters, each right with the probability that `skills` has for the method."""
    draw = np.random.default_rng(seed)
    return [
        vote
        for method, skill in skills.items()
        for pair in range(pairs)
        for vote in make_votes(pair, method, *(draw.random(raters) < skill), task=task)
    ]


def test_majorities_single_votes_and_ties_by_hand():
    votes = [*make_votes(1, "luo", 1, 1, 1), *make_votes(2, "luo", 0, 0, 1), *make_votes(3, "luo", 1, 0)]
    (found,) = count_majorities(votes, ["luo"])
    assert found.images == 3
    assert found.by_majority.value == pytest.approx(100 * (1 + 0 + 0.5) / 3)
    assert found.by_vote.value == pytest.approx(100 * 5 / 8)
    assert found.p == 1.0  # one of the two decided majorities is right
    (found,) = count_majorities([v for n in range(7) for v in make_votes(n, "luo", 1, n > 0)], ["luo"])
    assert found.p == pytest.approx(2 / 2**6)  # the tie does not count


def test_a_caption_of_two_methods_counts_for_both():
    found = count_majorities(
        make_votes(1, "luo+st_multinomial", 1, 1, 1), ["luo", "st_multinomial", "psst_multinomial"]
    )
    assert [each.method for each in found] == ["luo", "st_multinomial"]
    assert all(each.by_majority.value == 100 for each in found)


def test_a_difference_is_paired_by_image():
    votes = [vote for n in range(6) for vote in make_votes(n, "luo", n < 5)]
    votes += [vote for n in range(6) for vote in make_votes(n, "psst_multinomial", n == 5)]
    left, right = count_majorities(votes, ["luo", "psst_multinomial"])
    gap, p = compute_majority_difference(left, right)
    assert gap.value == pytest.approx(100 * 4 / 6)
    assert p == pytest.approx(2 * (1 + 6) / 2**6)  # 5 of 6 images favour one method: P(≥ 5) twice
    same, even = compute_majority_difference(left, left)
    assert (same.interval, even) == ((0, 0), 1.0)


def test_the_exact_binomial_test():
    assert compute_binomial_p_value(10, 10) == pytest.approx(2 / 1024)
    assert compute_binomial_p_value(0, 0) == 1.0


def test_krippendorffs_alpha_by_hand():
    """Two raters answer four questions: they agree on three (a a, a a, b b) and disagree on one (a b)."""
    votes = [*make_votes(1, "x", 1, 1), *make_votes(2, "x", 1, 1), *make_votes(3, "x", 0, 0), *make_votes(4, "x", 1, 0)]
    observed, expected = 2 / 8, 2 * 5 * 3 / (8 * 7)
    assert compute_agreement(votes) == pytest.approx(1 - observed / expected)
    assert np.isnan(compute_agreement(make_votes(1, "x", 1)))


def test_agreement_is_that_of_the_chosen_options_and_not_of_right_answers():
    """All raters are right: they choose a in one question and b in the other one."""
    votes = make_votes(1, "x", 1, 1)
    votes += [replace(vote, question=replace(vote.question, options=("b", "a"))) for vote in make_votes(2, "x", 1, 1)]
    assert compute_agreement(votes) == pytest.approx(1.0)


def test_votes_are_correlated_where_images_differ_in_difficulty():
    equal = [vote for n in range(10) for vote in make_votes(n, "x", *[n < 5] * 3)]
    assert count_majorities(equal, ["x"])[0].intraclass_correlation == pytest.approx(1.0)
    (independent,) = count_majorities(draw_votes({"x": 0.7}, 2000, 5, 0), ["x"])
    assert independent.intraclass_correlation == pytest.approx(0, abs=0.03)


def test_the_correlation_of_equal_votes_is_1_for_any_numbers_of_votes():
    (found,) = count_majorities([*make_votes(1, "x", 1, 1), *make_votes(2, "x", 0, 0, 0, 0)], ["x"])
    assert found.intraclass_correlation == pytest.approx(1.0)


def test_resamples_without_a_method_are_left_out_of_its_interval_alone():
    """A method has votes on 3 of 40 images, so that about one resample in twenty has none of them."""
    votes = [vote for n in range(40) for vote in make_votes(n, "luo", 1, n % 2)]
    votes += [vote for n in range(3) for vote in make_votes(n, "psst_multinomial", 1, 1)]
    luo, psst = count_majorities(votes, ["luo", "psst_multinomial"])
    assert np.isnan(psst.by_majority.drawn).any()
    assert psst.by_majority.interval == psst.by_vote.interval == (100, 100)
    gap, _ = compute_majority_difference(psst, luo)
    assert np.isfinite(gap.interval).all()
    both_methods, luo_only = estimate_preferences([luo, psst]), estimate_preferences([luo])
    assert np.isfinite(both_methods["psst_multinomial"].interval).all()
    assert both_methods["luo"].interval == pytest.approx(luo_only["luo"].interval)


def test_bradley_terry_scores_of_two_are_log_odds():
    wins = np.array([[0.0, 30], [10, 0]])
    assert fit_bradley_terry(wins) == pytest.approx([np.log(30.5 / 10.5), 0])


def test_bradley_terry_scores_of_three_solve_the_likelihood_equations():
    wins = np.array([[0.0, 12, 7], [5, 0, 9], [8, 4, 0]])
    scores = fit_bradley_terry(wins)
    smoothed = wins + 0.5 - 0.5 * np.eye(3)
    probabilities = 1 / (1 + np.exp(scores[None, :] - scores[:, None]))
    pairs = smoothed + smoothed.T
    assert smoothed.sum(1) == pytest.approx((pairs * probabilities).sum(1) - np.diag(pairs) * 0.5)
    assert scores[-1] == 0


def test_intervals_of_preferences_contain_the_log_odds_and_are_narrow():
    truth = {"psst_multinomial": 0.6, "luo": 0.45}
    found = estimate_preferences(count_majorities(draw_votes(truth, 300, 5, 4, NATURALNESS), list(truth)))
    for method, share in truth.items():
        low, high = found[method].interval
        assert low < np.log(share / (1 - share)) < high
        assert high - low < 0.5


def test_the_papers_accuracies_are_recovered_from_raters_of_that_skill():
    skills = {method: find_skill(accuracy, 5) for method, accuracy in PAPER.items()}
    measured, covered = {method: [] for method in PAPER}, []
    for seed in range(20):
        for found in count_majorities(draw_votes(skills, 300, 5, seed), list(PAPER), resamples=300):
            truths = ((found.by_majority, PAPER[found.method]), (found.by_vote, skills[found.method]))
            covered += [share.interval[0] <= 100 * truth <= share.interval[1] for share, truth in truths]
            measured[found.method].append(found.by_majority.value)
    assert 0.9 <= np.mean(covered) <= 0.99  # of 160 intervals
    for method, accuracy in PAPER.items():
        assert np.mean(measured[method]) == pytest.approx(100 * accuracy, abs=2)


def test_intervals_have_their_nominal_coverage():
    skill = find_skill(0.72, 5)
    covered = []
    for seed in range(200):
        (found,) = count_majorities(draw_votes({"luo": skill}, 60, 5, seed), ["luo"], resamples=400)
        low, high = found.by_majority.interval
        covered.append(low <= 72 <= high)
    assert 0.9 <= np.mean(covered) <= 0.99


def test_the_accuracy_of_a_majority():
    assert compute_majority_accuracy(0.7, 1) == pytest.approx(0.7)
    assert compute_majority_accuracy(0.7, 3) == pytest.approx(3 * 0.7**2 * 0.3 + 0.7**3)
    assert compute_majority_accuracy(0.7, 2) == pytest.approx(0.7)  # ties count half
    assert compute_majority_accuracy(0.7, 5, correlation=0.999) == pytest.approx(0.7, abs=0.002)
    assert find_skill(compute_majority_accuracy(0.64, 5, 0.2), 5, 0.2) == pytest.approx(0.64)


def test_votes_of_a_tiny_correlation_count_as_independent():
    for correlation in (1e-15, 1e-12, 1e-9, 1e-7):
        assert compute_majority_accuracy(0.6, 5, correlation) == pytest.approx(
            compute_majority_accuracy(0.6, 5), abs=1e-6
        )


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (0.9999999, 0.6, "expected an accuracy that a majority of 1 can have, got 99.99999 %; give one further"),
        (0.99999, 0.9999, "both majorities are right in 100 % of pairs, and no number of pairs distinguishes them"),
    ],
)
def test_accuracies_without_a_plan_are_reported_in_one_line(left, right, message):
    with pytest.raises(UserError, match=message):
        make_plans(left, right, 1, 0.0)


def test_the_needed_pairs_agree_with_a_simulation():
    left, right = 0.8, 0.6
    pairs = count_pairs_needed(left, right)
    assert compute_power(left, right, pairs) >= 0.8 > compute_power(left, right, pairs - 1)
    draw = np.random.default_rng(0)
    wins = [
        compute_binomial_p_value(int((a & ~b).sum()), int((a ^ b).sum())) < 0.05
        for a, b in (((draw.random(pairs) < left), (draw.random(pairs) < right)) for _ in range(1000))
    ]
    assert np.mean(wins) == pytest.approx(0.8, abs=0.06)  # the exact test has a little less power


def test_more_raters_a_pair_need_fewer_pairs():
    found = make_plans(0.75, 0.72, 5, 0.0)
    assert [plan.pairs for plan in found] == sorted((plan.pairs for plan in found), reverse=True)
    (five,) = [plan for plan in found if plan.raters == 5]
    assert five.accuracies == pytest.approx((0.75, 0.72))
    assert five.votes == 2 * 5 * five.pairs
    assert compute_power(0.75, 0.72, 300) < 0.2  # the paper's 300 pairs have little power for this difference
