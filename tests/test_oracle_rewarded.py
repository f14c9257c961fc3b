"""Gradients of WTF-RL and DiscriTune against exact ones, in a world small enough to enumerate every caption."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from expected_losses import compute_error_ratio
from test_oracle import IMAGES, STEPS, VOCABULARY, world

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.search import SearchTrajectory
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.joint import Agents, Objective
from pipeline.composition.retrieval_rewards import RewardModels
from pipeline.estimators.baselines import LeaveOneOut, RunningMean
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.gradients.measure import estimate_gradients
from pipeline.methods.discritune import discritune
from pipeline.methods.wtf_rl import rl, rl_sampled, wtf, wtf_rl
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.listener import Listener
from pipeline.models.retriever import Retriever
from pipeline.scores.contrastive import ContrastiveScore, TargetLogProbability
from pipeline.types import Message, make_caption_mask

__all__ = ["world"]

ALPHA = 0.7


@pytest.fixture(scope="module")
def rewards(world) -> RewardModels:
    torch.manual_seed(1)
    encoder = Listener(VOCABULARY, 3, words=4, hidden=4).double()
    torch.nn.init.normal_(encoder.word.weight)
    vectors = encoder.encode_image(world.batch.pooled).detach()
    neighbours = (torch.arange(IMAGES).unsqueeze(1) + 1) % IMAGES
    retriever = Retriever(encoder, vectors, 0.1, str, neighbours)
    heads = (CaptionClassifier(4, (6,)).double(), CaptionClassifier(4, (6,), with_images=False).double())
    return RewardModels(retriever, *heads, Beam(3), 0.01)


@pytest.mark.parametrize("directions", ["both", "image_to_text", "text_to_image"])
def test_the_gradient_of_the_contrastive_reward_equals_its_equation(world, rewards, directions):
    """The gradient is a mean over images: the expectation of r(x) ∇ log p(x) over captions of all images at once."""
    contrastive = replace(
        rewards.build_contrastive_score(directions, "sum", None),
        captions=(Greedy(), TeacherForcing(requires_grad=False)),
    )
    score = contrastive.bind_batch(StepRollouts(world.speaker, world.batch, seed=0))
    outcomes, log_probs = world.outcomes(), world.log_probs()
    texts = world.captions()[outcomes.T.flatten()]
    rows = torch.arange(IMAGES).repeat_interleave(len(outcomes))
    value = score(Message(texts, make_caption_mask(texts), rows, len(outcomes)), world.batch).view(IMAGES, -1)
    caption_log_probs = log_probs.gather(1, outcomes.T)  # (B, S)
    truth = world.gradient((caption_log_probs.sum(0).exp().detach() * (value * caption_log_probs).mean(0)).sum())
    if directions == "text_to_image":  # no other caption enters the score: the expected reward has this gradient, too
        torch.testing.assert_close(truth, world.exact_gradient(score))
    found = estimate_gradients(world, ScoreFunction(Multinomial(100)), score, rounds=100)
    assert float(truth.norm()) > 0.01
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(found, 1.5 * truth) > 5


@pytest.mark.parametrize(("make", "sources"), [(wtf, ["human"]), (rl, ["beam"]), (wtf_rl, ["beam", "human"])])
def test_the_gradients_of_rewarded_trajectories_are_exact(world, rewards, make, sources):
    """The loss's gradient is −Σ r(x) ∇ log p(x) / K for each of the `sources`, summed over them.

    K is the number of the source's tokens with EOS.
    """
    batch = world.batch
    rollouts = StepRollouts(world.speaker, batch, seed=1)
    generated = {
        "beam": rollouts.get_message(rewards.search),
        "human": rollouts.get_message(TeacherForcing(requires_grad=False)),
    }
    contrastive = rewards.build_contrastive_score("both", "sum", None).bind_batch(rollouts)
    captions, log_probs, expected = world.captions().tolist(), world.log_probs(), torch.zeros(())
    for name in sources:
        message = generated[name]
        reward = ALPHA * contrastive(message, batch) + (1 - ALPHA) * rewards.human_probability(message, batch)
        assert float(reward.std()) > 0.05  # with equal rewards, likelihood would have a proportional gradient
        padded = torch.nn.functional.pad(message.tokens, (0, STEPS - message.tokens.shape[1]))
        indices = torch.tensor([captions.index(row) for row in padded.tolist()])
        caption_log_probs = log_probs.gather(1, indices.unsqueeze(1)).squeeze(1)
        expected = expected - (reward.detach() * caption_log_probs).sum() / message.mask.sum()
    agents = Agents(world.speaker, world.listener, None, None)
    losses, _ = make(agents, Objective(), rewards, alpha=ALPHA).step(batch, seed=1)
    losses.pop("discriminator")
    found = world.gradient(torch.stack(list(losses.values())).sum())
    torch.testing.assert_close(found, world.gradient(expected))
    assert float(found.norm()) > 0.01


def test_a_searched_caption_is_teacher_forced_with_its_exact_likelihood(world):
    rollouts = StepRollouts(world.speaker, world.batch, seed=0)
    message = rollouts.get_message(SearchTrajectory(Beam(3)))
    assert torch.equal(message.tokens, rollouts.get_message(Beam(3)).tokens)
    log_probs = world.log_probs()
    width = len(world.captions())
    best = rollouts.get_message(SearchTrajectory(Beam(width)))  # a beam of this width returns the most probable caption
    torch.testing.assert_close(best.log_probs.sum(1), log_probs.amax(1))
    assert best.log_probs.requires_grad


def test_the_gradient_of_the_targets_log_probability_minus_a_running_mean_is_unbiased(world, rewards):
    score = TargetLogProbability(rewards.retriever, 0.1)
    found = estimate_gradients(world, ScoreFunction(Multinomial(100), RunningMean()), score, rounds=80)
    truth = world.exact_gradient(score)
    assert float(truth.norm()) > 0.01
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(found, 1.5 * truth) > 5


def test_discritune_and_sampled_rl_have_one_term_on_the_same_samples(world, rewards):
    agents, objective = (
        Agents(world.speaker, world.listener, None, None),
        Objective(samples=3, baseline="leave_one_out"),
    )
    tuned, sampled = discritune(agents, objective, rewards), rl_sampled(agents, objective, rewards)
    for method, score in ((tuned, TargetLogProbability), (sampled, ContrastiveScore)):
        (term,) = method.terms
        assert isinstance(term.score, score)
        assert term.estimator.channel == Multinomial(3)
        assert method.schedule.all_roles == {"speaker"}
    assert discritune(agents, objective, rewards, "searched").terms[0].estimator.channel == rewards.search_trajectory
    assert sampled.terms[0].estimator.baseline == LeaveOneOut()
    assert set(tuned.modules()) == {"speaker", "listener", "baseline.discriminability"}
    losses, report = tuned.step(world.batch, seed=1)
    assert list(losses) == ["discriminability"]
    assert float(tuned.modules()["baseline.discriminability"].mean) == pytest.approx(
        float(report["discriminability/score"])
    )
