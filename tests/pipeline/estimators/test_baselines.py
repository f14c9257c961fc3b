"""Baselines and scalings of advantages, by hand."""

import math
from types import SimpleNamespace

import pytest
import torch

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.estimators.baselines import (
    BatchStd,
    CentredBaseline,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    RunningMean,
    SelfCritical,
)
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import NoBaseline, ScoreFunction

VALUE = torch.tensor([1.0, 2.0, 6.0, -3.0, 0.0, 9.0])  # three samples of each of two images
ROLLOUTS = SimpleNamespace(batch=[None, None])


def test_every_sample_is_compared_with_the_others_of_its_image():
    found = LeaveOneOut()(VALUE, None, ROLLOUTS)
    torch.testing.assert_close(found, torch.tensor([4.0, 3.5, 1.5, 4.5, 3.0, -1.5]))
    assert (LeaveOneOut.min_samples, LeaveOneOut.per_token) == (2, False)


def test_the_groups_mean_is_that_of_the_image():
    torch.testing.assert_close(GroupMean()(VALUE, None, ROLLOUTS), torch.tensor([3.0, 3, 3, 2, 2, 2]))
    assert (GroupMean.min_samples, GroupMean.per_token) == (2, False)


def test_centred_advantages_sum_to_zero_over_the_batch_and_keep_their_differences():
    inner = GroupMean()
    found = CentredBaseline(inner)(VALUE + torch.tensor([0.0, 0, 0, 6, 0, 0]), None, ROLLOUTS)
    plain = inner(VALUE + torch.tensor([0.0, 0, 0, 6, 0, 0]), None, ROLLOUTS)
    torch.testing.assert_close(found - plain, torch.zeros(6))  # the mean advantage over a group's own mean is 0
    found = CentredBaseline(NoBaseline())(VALUE, None, ROLLOUTS)
    torch.testing.assert_close(found, torch.full((6,), 2.5))
    assert CentredBaseline(LeaveOneOut()).min_samples == 2
    assert CentredBaseline().inner == SelfCritical(Greedy())


@pytest.mark.parametrize(("scaling", "epsilon"), [(GroupStd(), 1e-4), (GroupStd(0.5), 0.5)])
def test_a_groups_deviation_divides_by_n_minus_1(scaling, epsilon):
    first = math.sqrt((4 + 1 + 9) / 2) + epsilon  # 1, 2, 6 around 3
    second = math.sqrt((25 + 4 + 49) / 2) + epsilon  # −3, 0, 9 around 2
    expected = [v / (first if n < 3 else second) for n, v in enumerate(VALUE.tolist())]
    assert scaling(VALUE, ROLLOUTS).tolist() == pytest.approx(expected)
    assert scaling.min_samples == 2


@pytest.mark.parametrize(("scaling", "epsilon"), [(BatchStd(), 1e-4), (BatchStd(0.5), 0.5)])
def test_the_batchs_deviation_divides_by_n_and_the_mean_stays(scaling, epsilon):
    variance = sum((v - 2.5) ** 2 for v in VALUE.tolist()) / 6
    expected = [v / (math.sqrt(variance) + epsilon) for v in VALUE.tolist()]
    assert scaling(VALUE, ROLLOUTS).tolist() == pytest.approx(expected)
    assert scaling.min_samples == 1


def test_the_greedy_captions_score_is_the_baseline_of_all_samples_of_its_image(toy):
    class FirstWordScore:
        """Score that is the id of a caption's first word."""

        differentiable = False

        def __call__(self, message, batch):
            return message.tokens[:, 0].float()

    speaker = toy.agents().speaker
    rollouts = StepRollouts(speaker, toy.batch(), seed=1)
    greedy = rollouts.get_message(Greedy()).tokens[:, 0].float()
    found = SelfCritical()(torch.zeros(24), FirstWordScore(), rollouts)
    assert found.tolist() == [float(v) for v in greedy for _ in range(3)]
    assert (SelfCritical.min_samples, SelfCritical.per_token) == (1, False)


@pytest.mark.parametrize(
    ("baseline", "scaling"), [(LeaveOneOut(), None), (GroupMean(), GroupStd()), (SelfCritical(), BatchStd())]
)
def test_an_advantage_is_the_score_minus_the_baseline_and_then_scaled(toy, baseline, scaling):
    from pipeline.estimators.surrogate import NoScaling
    from pipeline.scores.naturalness import CiderScore

    rollouts, score = StepRollouts(toy.agents().speaker, toy.batch(), seed=1), CiderScore(toy.cider)
    message = rollouts.get_message(Multinomial(4))
    value = score(message, rollouts.batch)
    expected = value - baseline(value, score, rollouts)
    expected = expected if scaling is None else scaling(expected, rollouts)
    estimator = ScoreFunction(Multinomial(4), baseline, scaling=scaling or NoScaling())
    torch.testing.assert_close(estimator.advantage(value, score, rollouts), expected)
    assert expected.std() > 0.1


def test_a_running_mean_is_of_the_earlier_batches_each_of_equal_weight():
    running = RunningMean()
    found = [float(running(torch.tensor(batch), None, ROLLOUTS)[0]) for batch in ([1.0, 3.0], [6.0], [1.0, 2.0, 3.0])]
    assert found == [0.0, 2.0, 4.0]  # 0 before the first batch; then (1 + 3) / 2 and (2 + 6) / 2
    assert running(VALUE, None, ROLLOUTS).tolist() == pytest.approx([10 / 3] * 6)
    assert (running.min_samples, running.per_token) == (1, False)
    resumed = RunningMean()
    resumed.load_state_dict(running.state_dict())
    assert torch.equal(resumed(VALUE, None, ROLLOUTS), running(VALUE, None, ROLLOUTS))


def test_a_returned_baseline_keeps_its_value_when_the_running_mean_changes():
    running = RunningMean()
    running(torch.tensor([4.0]), None, ROLLOUTS)
    expected = running(torch.tensor([8.0]), None, ROLLOUTS)
    running(torch.tensor([100.0]), None, ROLLOUTS)
    assert float(expected) == 4.0
