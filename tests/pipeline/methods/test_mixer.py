"""MIXER's losses by hand: cross-entropy of the forced words, REINFORCE of the drawn words, and the critic."""

from dataclasses import replace

import pytest
import torch
from expected_losses import assert_same_gradients, compute_gradients, compute_losses

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.channels.teacher_forcing import ForcedPrefix, PrefixSchedule, TeacherForcing
from pipeline.composition.joint import Objective
from pipeline.estimators.rollouts import StepRollouts
from pipeline.methods.guidance import guidance
from pipeline.methods.likelihood import mle
from pipeline.methods.mixer import mixer
from pipeline.methods.spider import pg_spider
from pipeline.scores.discriminability import Hinge

LAM = 0.25


def find_positions(message, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the positions (n, t) of the captions' tokens from `begin` to before `end`."""
    return [(n, t) for n, t in message.mask.nonzero().tolist() if begin <= t < end]


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_the_first_words_are_forced_and_the_others_rewarded(toy, epoch):
    agents, batch = toy.agents(), replace(toy.batch(), epoch=epoch)
    torch.manual_seed(0)
    method = mixer(
        agents, Objective(), LAM, "cider", forced_tokens=3, every=1, decrement=2, critic_hidden=4, critic_first=0
    )
    losses = compute_losses(method, batch)
    rollouts = StepRollouts(agents.speaker, batch, seed=1)
    message, forced = rollouts.get_message(ForcedPrefix(PrefixSchedule(3, 1, 2))), max(0, 3 - 2 * epoch)
    assert message.forced == forced
    count = int(message.mask.sum())
    forced_loss = (
        -sum((message.log_probs[n, t] for n, t in find_positions(message, 0, forced)), torch.zeros(())) / count
    )
    if forced:
        assert_same_gradients(losses["likelihood"], (1 - LAM) * forced_loss, agents.speaker)
    else:
        assert float(losses["likelihood"].detach()) == 0
        assert not any(gradient.any() for gradient in compute_gradients(losses["likelihood"], agents.speaker))
    value = toy.cider(message.tokens, message.images)
    critic, states = method.agents["critic"], message.states()
    drawn = find_positions(message, forced, 99)
    speaker_loss = sum(
        (-(value[n] - critic(states[n, t])).detach() * message.log_probs[n, t] for n, t in drawn), torch.zeros(())
    )
    assert_same_gradients(losses["naturalness"], (1 - LAM) * speaker_loss / count, agents.speaker)
    critic_loss = torch.stack([(critic(states[n, t]) - value[n]) ** 2 for n, t in drawn]).mean()
    assert_same_gradients(losses["critic"], critic_loss, critic)
    hinge = Hinge(agents.listener)
    samples = rollouts.get_message(Multinomial())
    advantage = hinge(samples, batch) - hinge(rollouts.get_message(Greedy()), batch)
    hinge_loss = (-(advantage.detach().unsqueeze(1) * samples.log_probs) * samples.mask).sum() / int(samples.mask.sum())
    assert_same_gradients(losses["discriminability"], LAM * hinge_loss, agents.speaker)


def test_all_words_are_forced_at_first_unless_a_number_is_given(toy):
    for forced, start in ((None, 6), (0, 0), (2, 2)):
        method = mixer(toy.agents(), Objective(), forced_tokens=forced)
        channel = next(term for term in method.terms if term.name == "naturalness").estimator.channel
        assert channel == ForcedPrefix(PrefixSchedule(start, 1, 4))
        assert {term.estimator.channel for term in method.terms} == {channel}  # λ = 0: no hinge


def test_critics_are_trained_alone_for_the_configured_steps(toy):
    for make, steps in ((mixer, 0), (pg_spider, 50)):
        for options in ({}, {"critic_first": 3}):
            schedule = make(toy.agents(), Objective(), reward="cider", **options).schedule
            warmup_steps = options.get("critic_first", steps)
            assert schedule.roles(warmup_steps) == {"speaker", "critic"}
            assert schedule.warmup_steps == warmup_steps
            assert schedule.warmup == {"critic"}
            if warmup_steps:
                assert schedule.roles(warmup_steps - 1) == {"critic"}


def test_critics_have_the_configured_hidden_layer(toy):
    for make in (mixer, pg_spider):
        assert make(toy.agents(), Objective(), reward="cider").agents["critic"].inner.out_features == 512
        method = make(toy.agents(), Objective(), reward="cider", critic_hidden=7)
        assert method.agents["critic"].inner.out_features == 7


@pytest.mark.parametrize("make", [mle, guidance])
def test_mle_is_cross_entropy_and_guidance_masks_images(toy, make):
    agents, batch = toy.agents(), replace(toy.batch(), epoch=9)
    method = make(agents, Objective())
    losses = compute_losses(method, batch)
    message = StepRollouts(agents.speaker, batch, seed=1).get_message(TeacherForcing())
    assert_same_gradients(losses["likelihood"], -message.log_probs[message.mask].mean(), agents.speaker)
    assert [term.name for term in method.terms] == ["likelihood"]
    assert method.schedule.all_roles == {"speaker"}
    assert set(method.agents) == {"speaker", "listener"}
    assert method.image_dropout == (0.1 if make is guidance else 0.0)
    if make is guidance:
        assert guidance(toy.agents(), Objective(), image_dropout=0.3).image_dropout == 0.3
