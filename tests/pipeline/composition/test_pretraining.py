"""Pretraining: the role that each method trains, its captions and its loss."""

from dataclasses import replace

import pytest
import torch
from expected_losses import assert_same_gradients, compute_losses

from pipeline.channels.hard import Multinomial
from pipeline.channels.teacher_forcing import ScheduledSampling, TeacherForcing
from pipeline.composition.pretraining import build_listener_adaptation, build_listener_matching, build_teacher_forcing
from pipeline.estimators.rollouts import StepRollouts, make_human_message
from pipeline.models.unroll import teacher_force
from pipeline.scores.discriminability import Hinge


def test_teacher_forcing_is_the_cross_entropy_of_the_human_captions(toy, decoder):
    agents, batch = toy.agents(decoder=decoder), toy.batch()
    method = build_teacher_forcing(agents.roles)
    losses, message = compute_losses(method, batch), teacher_force(agents.speaker, batch)
    assert set(losses) == {"likelihood"}
    assert_same_gradients(losses["likelihood"], -message.log_probs[message.mask].mean(), agents.speaker)
    assert [method.schedule.roles(step) for step in range(3)] == [{"speaker"}] * 3
    assert method.image_dropout == 0
    assert agents.speaker.null is None


def test_scheduled_sampling_and_the_null_image_are_passed_on(toy):
    agents, batch = toy.agents(), replace(toy.batch(), epoch=9)
    schedule = ScheduledSampling(start=0, every=1, increment=0.5, max_share=0.5)
    method = build_teacher_forcing(agents.roles, schedule, 0.2)
    message = StepRollouts(agents.speaker.train(), batch, seed=1).get_message(TeacherForcing(schedule))
    losses = compute_losses(method, batch)
    assert_same_gradients(losses["likelihood"], -message.log_probs[message.mask].mean(), agents.speaker)
    plain = teacher_force(agents.speaker, batch).log_probs[:, : message.tokens.shape[1]]
    assert not torch.allclose(plain, message.log_probs), "the test needs sampled inputs that change the likelihoods"
    assert method.image_dropout == 0.2
    assert agents.speaker.null is not None


def test_listener_pretraining_matches_human_captions(toy):
    agents, batch = toy.agents(), toy.batch()
    method = build_listener_matching(agents.listener, Hinge(agents.listener))
    assert set(method.agents) == {"listener"}
    losses = compute_losses(method, batch)
    expected = -Hinge(agents.listener)(make_human_message(batch), batch).mean()
    assert_same_gradients(losses["matching"], expected, agents.listener)
    assert [method.schedule.roles(step) for step in range(3)] == [{"listener"}] * 3


@pytest.mark.parametrize("step", [0, 1, 5])
def test_a_frozen_speaker_generates_without_dropout_and_without_a_gradient(toy, decoder, step):
    agents, batch = toy.agents(dropout=0.5, decoder=decoder), toy.batch(step)
    method = build_listener_adaptation(agents.speaker, agents.listener, Hinge(agents.listener))
    assert method.schedule.all_roles == {"listener"}
    losses = compute_losses(method, batch)
    assert [p.requires_grad for p in agents.speaker.parameters()] == [False] * len(list(agents.speaker.parameters()))
    assert not agents.speaker.training
    message = StepRollouts(agents.speaker.eval(), batch, seed=1).get_message(Multinomial())
    expected = -Hinge(agents.listener)(message, batch).mean()
    assert_same_gradients(losses["matching"], expected, agents.listener)
    assert not torch.equal(message.tokens, make_human_message(batch).tokens[:, : message.tokens.shape[1]])
