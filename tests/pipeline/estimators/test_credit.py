from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipeline.channels.hard import Multinomial
from pipeline.errors import UserError
from pipeline.estimators import rollouts as rollouts_module
from pipeline.estimators.baselines import BatchStd
from pipeline.estimators.credit import MonteCarloCredit
from pipeline.estimators.critic_baseline import CriticBaseline, CriticLoss
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import CaptionCredit, ScoreFunction
from pipeline.models.critic import Critic
from pipeline.scores.discriminability import Hinge
from pipeline.types import Message, make_caption_mask

SAMPLES = 3
CHANNEL = Multinomial(2)


class TokenCount:
    """Score that is the number of tokens of a caption, with EOS; `calls` counts its calls."""

    differentiable = False
    calls = 0

    def __call__(self, message: Message, batch) -> torch.Tensor:
        self.calls += 1
        return message.mask.sum(1).float()


@pytest.fixture
def rollouts(toy) -> StepRollouts:
    agents = toy.agents(dropout=0.4)
    agents.speaker.train()
    return StepRollouts(agents.speaker, toy.batch(), seed=1)


def test_continuations_begin_with_the_captions_words_and_end_differently(rollouts):
    message, found = rollouts.get_message(CHANNEL), rollouts.continue_prefixes(CHANNEL, SAMPLES)
    n, steps = message.tokens.shape
    continued = found.tokens.view(n, steps - 1, SAMPLES, -1)
    different = 0
    for caption in range(n):
        for t in range(steps - 1):
            for k in range(SAMPLES):
                row, own = continued[caption, t, k].tolist(), message.tokens[caption].tolist()
                assert row[: t + 1] == own[: t + 1]
                if own[t] == 0:
                    assert row[:steps] == own
                    assert not any(row[steps:])
                else:
                    different += row[:steps] != own
    assert different > n
    assert torch.equal(found.mask, make_caption_mask(found.tokens))
    assert found.samples == message.samples * (steps - 1) * SAMPLES
    assert torch.equal(found.images, message.images.repeat_interleave((steps - 1) * SAMPLES))
    assert found.log_probs is None


@pytest.mark.parametrize("max_continuations", [1, 40, 10**6])
def test_continuations_do_not_depend_on_the_size_of_parts(rollouts, toy, monkeypatch, max_continuations):
    whole = rollouts.continue_prefixes(CHANNEL, SAMPLES)
    monkeypatch.setattr(rollouts_module, "MAX_CONTINUATIONS", max_continuations)
    cut = StepRollouts(rollouts.speaker, rollouts.batch, seed=1).continue_prefixes(CHANNEL, SAMPLES)
    assert torch.equal(cut.tokens, whole.tokens)


def test_the_credit_of_the_last_token_is_the_captions_score(rollouts):
    score, message = TokenCount(), rollouts.get_message(CHANNEL)
    value = score(message, rollouts.batch)
    credit = MonteCarloCredit(SAMPLES)(value, score, CHANNEL, rollouts)
    assert credit.shape == message.tokens.shape
    assert torch.equal(credit.gather(1, message.mask.sum(1, keepdim=True) - 1).squeeze(1), value)
    continued = rollouts.continue_prefixes(CHANNEL, SAMPLES).mask.sum(1).float().view(len(message), -1, SAMPLES).mean(2)
    inner = message.mask[:, 1:]
    torch.testing.assert_close(credit[:, :-1][inner], continued[inner])
    assert torch.equal(CaptionCredit()(value, score, CHANNEL, rollouts), value)


def test_the_credit_of_empty_captions_is_their_score(toy):
    agents = toy.agents()
    with torch.no_grad():
        agents.speaker.logit.bias[0] = 100.0
    rollouts, value = StepRollouts(agents.speaker, toy.batch(), seed=1), torch.arange(16.0)
    assert not rollouts.get_message(CHANNEL).tokens.any()
    # the continuations of an empty caption would all have the score 1
    assert torch.equal(MonteCarloCredit(2)(value, TokenCount(), CHANNEL, rollouts), value.unsqueeze(1))


def test_speaker_and_critic_share_the_continuations(rollouts):
    score, credit, critic = TokenCount(), MonteCarloCredit(SAMPLES), Critic(8, 4)
    ScoreFunction(CHANNEL, CriticBaseline(critic, CHANNEL), credit=credit).surrogate(score, rollouts)
    calls = score.calls
    CriticLoss(CHANNEL, critic, credit).surrogate(score, rollouts)
    assert score.calls == calls + 1  # the captions themselves


def test_speaker_and_critic_get_no_gradient_from_each_others_terms(toy):
    agents, critic = toy.agents(), Critic(8, 4)
    rollouts, score = StepRollouts(agents.speaker, toy.batch(), seed=1), TokenCount()
    ScoreFunction(CHANNEL, CriticBaseline(critic, CHANNEL)).surrogate(score, rollouts)[0].backward()
    assert all(p.grad is None for p in critic.parameters())
    assert agents.speaker.logit.weight.grad.any()
    agents.speaker.zero_grad()
    rollouts = StepRollouts(agents.speaker, toy.batch(), seed=1)
    CriticLoss(CHANNEL, critic).surrogate(score, rollouts)[0].backward()
    assert all(p.grad is None for p in agents.speaker.parameters())
    assert critic.inner.weight.grad.any()


def test_a_hinge_scores_each_continuation_among_the_captions_continued_at_the_same_step(toy):
    agents = toy.agents()
    rollouts, score = StepRollouts(agents.speaker, toy.batch(), seed=1), Hinge(agents.listener)
    loss, report = ScoreFunction(Multinomial(), credit=MonteCarloCredit(2)).surrogate(score, rollouts)
    assert torch.isfinite(loss)
    assert set(report) == {"score", "words", "advantage", "log_prob"}
    message, continued = rollouts.get_message(Multinomial()), rollouts.continue_prefixes(Multinomial(), 2)
    credit = MonteCarloCredit(2)(score(message, rollouts.batch), score, Multinomial(), rollouts)
    tokens = continued.tokens.view(len(message), -1, 2, continued.tokens.shape[1])
    for t in range(message.tokens.shape[1] - 1):
        groups = [Message(tokens[:, t, k], make_caption_mask(tokens[:, t, k]), torch.arange(8), 1) for k in range(2)]
        expected = torch.stack([score(group, rollouts.batch) for group in groups]).mean(0)
        inner = message.mask[:, t + 1]
        torch.testing.assert_close(credit[inner, t], expected[inner])


def test_the_surrogate_with_an_advantage_for_each_word_by_hand():
    from pipeline.estimators.surrogate import build_surrogate

    tokens = torch.tensor([[1, 0], [2, 3]])
    message = Message(
        tokens, make_caption_mask(tokens), torch.arange(2), 1, torch.tensor([[-1.0, -2.0], [-0.5, -0.25]])
    )
    advantage, value = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2)
    loss, report = build_surrogate(value, message, advantage)
    assert loss.item() == pytest.approx((1 + 4 + 1.5 + 1) / 4)
    assert report["advantage"].item() == pytest.approx(2.5)
    prefix_forced = replace(message, forced=1)
    assert build_surrogate(value, prefix_forced, advantage, words="forced")[0].item() == pytest.approx((1 + 1.5) / 4)
    assert build_surrogate(value, prefix_forced, advantage, words="drawn")[0].item() == pytest.approx((4 + 1) / 4)


@pytest.mark.parametrize("options", [{"credit": MonteCarloCredit(2)}, {"baseline": "critic"}])
def test_a_scaling_of_advantages_per_token_is_refused(options, toy):
    channel = Multinomial(2)
    if "baseline" in options:
        options = {"baseline": CriticBaseline(Critic(toy.agents().speaker.hidden, 4), channel)}
    ScoreFunction(channel, **options)
    with pytest.raises(UserError, match=r"BatchStd scales one number per caption, .*: use NoScaling\(\)$"):
        ScoreFunction(channel, **options, scaling=BatchStd())
