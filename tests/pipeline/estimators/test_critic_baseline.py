"""A critic's regression, and the critic as a baseline, token by token."""

import pytest
import torch
from expected_losses import assert_same_gradients

from pipeline.channels.hard import Multinomial
from pipeline.channels.teacher_forcing import ForcedPrefix, PrefixSchedule
from pipeline.estimators.credit import MonteCarloCredit
from pipeline.estimators.critic_baseline import CriticBaseline, CriticLoss
from pipeline.estimators.rollouts import StepRollouts
from pipeline.models.critic import Critic
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import CiderScore


@pytest.fixture
def critic(toy) -> Critic:
    torch.manual_seed(3)
    return Critic(toy.agents().speaker.hidden, 5)


@pytest.mark.parametrize(
    ("channel", "words"), [(Multinomial(2), "all"), (ForcedPrefix(PrefixSchedule(2)), "drawn")], ids=str
)
@pytest.mark.parametrize("credit", [None, MonteCarloCredit(2)], ids=str)
def test_a_critics_loss_covers_the_credit_of_the_selected_tokens(toy, critic, channel, words, credit):
    rollouts, score = StepRollouts(toy.agents().speaker, toy.batch(), seed=1), CiderScore(toy.cider)
    message = rollouts.get_message(channel)
    value = score(message, rollouts.batch)
    options = {} if credit is None else {"credit": credit}
    loss, report = CriticLoss(channel, critic, words=words, **options).surrogate(score, rollouts)
    returns = (
        value.unsqueeze(1).expand(message.tokens.shape) if credit is None else credit(value, score, channel, rollouts)
    )
    states, squares, expected = message.states(), [], []
    for n, t in message.mask.nonzero().tolist():
        if words == "drawn" and t < 2:
            continue
        (predicted,) = critic.outer(torch.relu(critic.inner(states[n, t])))
        squares.append((predicted - returns[n, t]) ** 2)
        expected.append(float(predicted.detach()))
    assert_same_gradients(loss, torch.stack(squares).mean(), critic)
    assert float(report["expected"]) == pytest.approx(sum(expected) / len(expected), abs=1e-6)


def test_the_baseline_is_the_critics_prediction_before_each_token(toy, critic):
    rollouts = StepRollouts(toy.agents().speaker, toy.batch(), seed=1)
    message = rollouts.get_message(Multinomial(2))
    found = CriticBaseline(critic, Multinomial(2))(torch.zeros(16), None, rollouts)
    assert found.shape == message.tokens.shape
    torch.testing.assert_close(found, critic.outer(torch.relu(critic.inner(message.states()))).squeeze(2))
    assert (CriticBaseline.min_samples, CriticBaseline.per_token) == (1, True)


def test_a_critics_loss_updates_only_the_critic(toy, critic):
    agents = toy.agents()
    loss, _ = CriticLoss(Multinomial(2), critic).surrogate(
        Hinge(agents.listener), StepRollouts(agents.speaker, toy.batch(), seed=1)
    )
    loss.backward()
    assert all(weight.grad is not None for weight in critic.parameters())
    assert all(weight.grad is None for agent in (agents.speaker, agents.listener) for weight in agent.parameters())
