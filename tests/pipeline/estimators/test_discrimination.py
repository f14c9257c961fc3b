"""A discriminator's loss, its update before the speaker's, and its learning rate."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import pytest
import torch
from conftest import make_reward_models
from toy_batches import ToyBatches

from pipeline.channels.corrupted import CorruptedCaptions
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.joint import Objective
from pipeline.composition.method import DISCRIMINATOR, SPEAKER_ONLY, Method, Term, UpdateSchedule
from pipeline.composition.retrieval_rewards import add_discriminator
from pipeline.estimators.discrimination import BinaryDiscrimination
from pipeline.estimators.rollouts import StepRollouts
from pipeline.methods.wtf_rl import rl, wtf_rl
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.runtime.adam import Adam
from pipeline.scores.human_likeness import HumanLogOdds, HumanProbability
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation


class FixedLogOdds:
    """Log-odds of −2, −1, 0, … for human captions, and of −.5 for all other captions."""

    differentiable = False

    def __call__(self, message, batch):
        human = message.tokens is batch.captions
        return torch.arange(-2.0, len(message) - 2) if human else torch.full((len(message),), -0.5)


def test_the_loss_is_the_cross_entropy_of_both_classes_and_the_accuracy_the_share_of_correct_captions(toy):
    rollouts = StepRollouts(None, toy.batch(), seed=0)
    loss, report = BinaryDiscrimination(CorruptedCaptions()).surrogate(FixedLogOdds(), rollouts)
    human_loss = sum(log(1 + exp(-odds)) for odds in range(-2, 6)) / 8
    assert float(loss) == pytest.approx((human_loss + log(1 + exp(-0.5))) / 2)
    assert float(report["accuracy"]) == (5 + 8) / 16  # five human captions have positive log-odds
    assert float(report["human"]) == pytest.approx(sum(1 / (1 + exp(-odds)) for odds in range(-2, 6)) / 8)
    assert float(report["others"]) == pytest.approx(1 / (1 + exp(0.5)))


def test_two_outputs_are_one_log_odds():
    torch.manual_seed(0)
    discriminator = CaptionClassifier(3, (4, 2))
    images, captions = torch.randn(2, 5, 3).unbind(0)
    shares = discriminator.layers(torch.cat([images, captions], 1)).softmax(1)
    torch.testing.assert_close(discriminator(images, captions).sigmoid(), shares[:, 1])
    text_only = CaptionClassifier(3, (4,), with_images=False)
    torch.testing.assert_close(text_only(images, captions), text_only(-images, captions))


def test_a_trained_discriminator_separates_different_captions(toy):
    """Human captions of the toy world begin with their image's word; corrupted captions often do not."""
    rewards = replace(make_reward_models(), discriminator=CaptionClassifier(10, (32, 16)))
    odds = HumanLogOdds(rewards.retriever, rewards.discriminator)
    method = Method(
        {"discriminator": rewards.discriminator},
        (Term("discriminator", 1.0, odds, BinaryDiscrimination(CorruptedCaptions()), DISCRIMINATOR),),
        UpdateSchedule((DISCRIMINATOR,)),
    )
    adam, accuracy = Adam(rewards.discriminator), []
    for step in range(300):
        method.freeze(step)
        losses, report = method.step(toy.batch(), seed=1)  # the same corrupted captions each time
        losses["discriminator"].backward()
        adam.step(0.01)
        accuracy.append(float(report["discriminator/accuracy"]))
    assert accuracy[0] < 0.8
    assert min(accuracy[-20:]) == 1


def train_one_step(method: Method, toy) -> dict[str, float]:
    logged: list[dict[str, float]] = []
    training = Training(
        method,
        ToyBatches(toy, steps=1),
        Optimisation(epochs=1, learning_rate=0.1),
        seed=1,
        device=torch.device("cpu"),
        record=lambda metrics, step: logged.append(metrics),
    )
    training.run()
    return logged[0]


def test_the_speakers_reward_uses_the_discriminator_updated_in_the_same_step(toy):
    rewards = replace(make_reward_models(), learning_rate=0.3)
    logged = train_one_step(rl(toy.agents(), Objective(), rewards, alpha=0.5), toy)
    rollouts = StepRollouts(toy.agents().speaker, toy.batch(), seed=1)
    generated = rollouts.get_message(rewards.search)
    updated = rewards.human_probability(generated, toy.batch()).mean()
    initial = make_reward_models().human_probability(generated, toy.batch()).mean()
    assert logged["naturalness/score"] == pytest.approx(float(updated))
    assert abs(float(updated - initial)) > 1e-3
    assert {"discriminator/accuracy", "discriminator/human", "discriminator/gradient_norm"} <= logged.keys()


def test_a_discriminator_has_its_own_learning_rate(toy):
    changes = []
    for rate in (0.0, 0.02):
        rewards = replace(make_reward_models(), learning_rate=rate)
        initial = {name: p.detach().clone() for name, p in rewards.discriminator.named_parameters()}
        train_one_step(wtf_rl(toy.agents(), Objective(), rewards), toy)
        changes.append(
            max(float((p.detach() - initial[name]).abs().max()) for name, p in rewards.discriminator.named_parameters())
        )
    assert changes[0] == 0
    assert changes[1] == pytest.approx(0.02, rel=0.01)  # Adam's first step


def test_frozen_heads_and_the_retriever_stay_bit_identical(toy):
    rewards, fresh = make_reward_models(), make_reward_models()
    method = wtf_rl(toy.agents(), Objective(), rewards)
    train_one_step(replace(method, schedule=SPEAKER_ONLY), toy)
    for role in ("discriminator", "grammar"):
        current, initial = getattr(rewards, role).state_dict(), getattr(fresh, role).state_dict()
        assert all(torch.equal(current[name], value) for name, value in initial.items())
    current = rewards.retriever.encoder.state_dict()
    assert all(torch.equal(current[name], value) for name, value in fresh.retriever.encoder.state_dict().items())


def test_the_human_probability_gives_the_discriminator_no_gradient(toy):
    rewards = make_reward_models()
    human = HumanProbability(rewards.retriever, rewards.discriminator)
    found = human(StepRollouts(None, toy.batch(), 0).get_message(TeacherForcing(requires_grad=False)), toy.batch())
    assert not found.requires_grad


def test_a_discriminator_is_saved_with_the_methods_agents(toy, tmp_path):
    method = add_discriminator(rl(toy.agents(), Objective(), rewards := make_reward_models()), rewards, rewards.search)
    save_agents(tmp_path / "weights.safetensors", method.agents)
    loaded = load_agent(tmp_path / "weights.safetensors", "discriminator")
    assert all(torch.equal(value, loaded.state_dict()[n]) for n, value in rewards.discriminator.state_dict().items())
