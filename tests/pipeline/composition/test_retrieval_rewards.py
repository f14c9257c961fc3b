"""Methods with a retriever's rewards: the captions that they compare, and the updates of the discriminator."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import make_reward_models
from expected_losses import assert_same_gradients, compute_losses
from torch.nn.functional import softplus
from toy_batches import ToyBatches

from pipeline.channels.corrupted import CorruptedCaptions
from pipeline.channels.hard import Greedy, Multinomial
from pipeline.channels.search import SearchTrajectory
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.joint import Objective
from pipeline.composition.method import JOINT, SPEAKER_ONLY, Method, Term, UpdateSchedule
from pipeline.composition.retrieval_rewards import add_discriminator, build_head_pretraining, build_reward_terms
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.methods.wtf_rl import scst_discriminator, wtf, wtf_rl
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation


@pytest.fixture
def rewards():
    return make_reward_models()


def compute_cross_entropy(log_odds, human, other) -> torch.Tensor:
    """Return the mean cross-entropy of human captions and of other captions."""
    return (softplus(-log_odds(human)).mean() + softplus(log_odds(other)).mean()) / 2


def make_log_odds(rewards, head: str):
    """Return a function that computes the log-odds of a message's captions: the second output minus the first."""
    network = getattr(rewards, head)

    def compute_log_odds(message) -> torch.Tensor:
        text_vectors, image_vectors = rewards.retriever.encode_text(message), rewards.retriever.vectors[message.images]
        logits = network.layers(torch.cat([image_vectors, text_vectors], 1) if network.with_images else text_vectors)
        return logits[:, 1] - logits[:, 0]

    return compute_log_odds


def test_the_discriminator_is_pretrained_on_searched_captions_and_the_grammar_on_corrupted_ones(toy, rewards):
    agents, batch = toy.agents(), toy.batch()
    method = build_head_pretraining(rewards, agents.speaker)
    losses, generated = compute_losses(method, batch), StepRollouts(agents.speaker.eval(), batch, seed=1)
    human = generated.get_message(TeacherForcing(requires_grad=False))
    for name, channel in (("discriminator", rewards.search), ("grammar", CorruptedCaptions())):
        network, other = getattr(rewards, name), generated.get_message(channel)
        expected = compute_cross_entropy(make_log_odds(rewards, name), human, other)
        assert_same_gradients(losses[name], expected, network)
    searched, greedy = (generated.get_message(channel).tokens for channel in (rewards.search, Greedy()))
    assert searched.shape != greedy.shape or not torch.equal(searched, greedy), (
        "the test needs searched captions that differ from greedy ones"
    )
    assert set(losses) == {"discriminator", "grammar"}
    assert [method.schedule.list_updates(step) for step in (0, 1)] == [(frozenset({"discriminator", "grammar"}),)] * 2
    assert dict(method.rates) == {}


@pytest.mark.parametrize("make", [wtf, wtf_rl, scst_discriminator])
def test_the_discriminator_keeps_training_on_searched_captions(toy, rewards, make):
    agents, batch = toy.agents(), toy.batch()
    method = make(agents, Objective(), rewards)
    losses, generated = compute_losses(method, batch), StepRollouts(agents.speaker, batch, seed=1)
    human, other = generated.get_message(TeacherForcing(requires_grad=False)), generated.get_message(rewards.search)
    expected = compute_cross_entropy(make_log_odds(rewards, "discriminator"), human, other)
    assert_same_gradients(losses["discriminator"], expected, rewards.discriminator)
    assert method.rates == {"discriminator": 0.02}
    assert method.agents["discriminator"] is rewards.discriminator
    assert method.validation_judges == rewards.validation_judges == {"rewarded": rewards.retriever}


@pytest.mark.parametrize("make", [wtf, wtf_rl, scst_discriminator])
def test_a_step_updates_the_discriminator_before_it_computes_the_reward(toy, make):
    rewards, logged = replace(make_reward_models(), learning_rate=0.3), []
    agents = toy.agents()
    method = make(agents, Objective(), rewards, alpha=0.5)
    assert method.schedule.list_updates(3) == (frozenset({"discriminator"}), frozenset({"speaker"}))
    channel = TeacherForcing(requires_grad=False) if make is wtf else rewards.search
    message = StepRollouts(toy.agents().speaker, toy.batch(), seed=1).get_message(channel)
    old = float(rewards.human_probability(message, toy.batch()).mean())
    settings = Optimisation(epochs=1, learning_rate=0.1, validate_every=0)
    device = torch.device("cpu")
    Training(
        method, ToyBatches(toy, steps=1), settings, 1, device, record=lambda metrics, step: logged.append(metrics)
    ).run()
    new = float(rewards.human_probability(message, toy.batch()).mean())
    assert logged[0]["naturalness_of_human/score" if make is wtf else "naturalness/score"] == pytest.approx(new)
    assert abs(new - old) > 1e-3


def test_a_discriminator_is_updated_in_every_step_after_the_warm_up(toy, rewards):
    term = Term("naturalness", 1.0, rewards.human_probability, ScoreFunction(Multinomial()), frozenset({"speaker"}))
    roles = toy.agents().roles
    schedule = UpdateSchedule((frozenset({"speaker"}), frozenset({"listener"})), frozenset({"listener"}), 2)
    method = add_discriminator(Method(roles, (term,), schedule, rates={"listener": 0.5}), rewards, Multinomial())
    found = [method.schedule.list_updates(step) for step in range(4)]
    discriminator = frozenset({"discriminator"})
    assert found == [(frozenset({"listener"}),)] * 2 + [
        (discriminator, frozenset({"speaker"})),
        (discriminator, frozenset({"listener"})),
    ]
    assert method.rates == {"listener": 0.5, "discriminator": 0.02}
    assert [t.name for t in method.terms] == ["discriminator", "naturalness"]
    assert method.terms[0].estimator.channel == Multinomial()
    assert add_discriminator(Method(roles, (term,), JOINT), rewards, Greedy()).schedule.roles(0) == {
        "speaker",
        "listener",
        "discriminator",
    }


def test_searched_greedy_and_human_captions_are_compared(rewards):
    score = rewards.build_contrastive_score("both", "mean", 3.0)
    assert score.captions == (rewards.search, Greedy(), TeacherForcing(requires_grad=False))
    assert (score.retriever, score.temperature) == (rewards.retriever, rewards.retriever.temperature)
    assert (score.directions, score.combine, score.clamp) == ("both", "mean", 3.0)
    other = make_reward_models(6).retriever
    assert rewards.search_trajectory == SearchTrajectory(rewards.search)
    with_judge = replace(rewards, judge=other)
    assert with_judge.validation_judges == {"rewarded": rewards.retriever, "judged": other}


def test_a_method_drops_terms_of_weight_0(toy, rewards):
    terms = build_reward_terms(
        rewards.build_contrastive_score("both", "sum", None), rewards, 1.0, TeacherForcing(), rewards.search_trajectory
    )
    method = Method(toy.agents().roles, terms, SPEAKER_ONLY)
    assert [term.name for term in method.terms] == ["discriminability_of_human", "discriminability"]
