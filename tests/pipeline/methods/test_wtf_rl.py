"""WTF-RL and its ablations: rewards and losses computed caption by caption (Chaffin et al. 2024, Eq. 1–3)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from conftest import IMAGES, make_reward_models
from expected_losses import assert_same_gradients, compute_gradients, compute_likelihood_loss, compute_losses

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.joint import Objective
from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts
from pipeline.methods.wtf_rl import (
    psst_wtf,
    rl,
    rl_sampled,
    rl_unidirectional,
    scst_discriminator,
    scst_grammar,
    wtf,
    wtf_rl,
)
from pipeline.models.retriever import Retriever

ALPHA, TAU = 0.7, 0.1


@pytest.fixture
def rewards():
    return make_reward_models()


@pytest.fixture
def step_rollouts(toy, rewards) -> tuple:
    """Return agents, a batch, and a step's rollouts for the batch."""
    agents, batch = toy.agents(), toy.batch()
    return agents, batch, StepRollouts(agents.speaker, batch, seed=1)


def cosine(rewards, message, n: int, image: int) -> float:
    return float(rewards.retriever.encode_text(message)[n] @ rewards.retriever.vectors[image])


def compute_contrastive_reward(
    rewards, rollouts, message, directions: str = "both", combine: str = "sum", clamp=None, captions=None
) -> torch.Tensor:
    """Return Eq. 2 over the other images, including the retriever's neighbours, and the other `captions`.

    By default, `captions` are the searched, greedy and human captions.
    """
    captions = captions or [
        rollouts.get_message(rewards.search),
        rollouts.get_message(Greedy()),
        rollouts.get_message(TeacherForcing(requires_grad=False)),
    ]
    found = []
    for n, image in enumerate(message.images.tolist()):
        caption_cosines = [
            cosine(rewards, other, m, image)
            for other in captions
            for m in range(len(other))
            if not (other.tokens is message.tokens and m == n)
        ]
        images = {*range(IMAGES), *rewards.retriever.neighbours.flatten().tolist()} - {image}
        ratios = []
        for name, negatives in (
            ("image_to_text", caption_cosines),
            ("text_to_image", [cosine(rewards, message, n, other) for other in images]),
        ):
            if directions in ("both", name):
                ratio = cosine(rewards, message, n, image) / TAU - math.log(sum(math.exp(c / TAU) for c in negatives))
                ratios.append(ratio if clamp is None else min(ratio, clamp))
        found.append(TAU * sum(ratios) / (len(ratios) if combine == "mean" else 1))
    return torch.tensor(found)


def compute_human_probability(rewards, message, head: str = "discriminator") -> torch.Tensor:
    """Return the softmax of a head's second output for the captions' vectors, with or without the images' vectors."""
    network, text_vectors = getattr(rewards, head), rewards.retriever.encode_text(message)
    inputs = text_vectors
    if network.with_images:
        inputs = torch.cat([rewards.retriever.vectors[message.images], text_vectors], 1)
    return network.layers(inputs).softmax(1)[:, 1].detach()


SEARCH, HUMAN = "", "_of_human"
CLAMP = -4.0  # some log-ratios of each direction are greater, and others are less; few are positive
CLAMPED_MEAN = {"combine": "mean", "clamp": CLAMP}
WTF_RL = [
    (wtf, {}, {HUMAN: {}}),
    (wtf, CLAMPED_MEAN, {HUMAN: CLAMPED_MEAN}),
    (rl, {}, {SEARCH: {}}),
    (rl, CLAMPED_MEAN, {SEARCH: CLAMPED_MEAN}),
    (rl, {"directions": "text_to_image"}, {SEARCH: {"directions": "text_to_image"}}),
    (rl_unidirectional, {}, {SEARCH: {"directions": "image_to_text"}}),
    (rl_unidirectional, {"clamp": CLAMP}, {SEARCH: {"directions": "image_to_text", "clamp": CLAMP}}),
    (wtf_rl, {}, {SEARCH: {}, HUMAN: {}}),
    (wtf_rl, CLAMPED_MEAN, {SEARCH: CLAMPED_MEAN, HUMAN: CLAMPED_MEAN}),
]


@pytest.mark.parametrize(("make", "options", "trajectories"), WTF_RL, ids=lambda x: getattr(x, "__name__", None))
def test_the_loss_weighs_the_likelihood_of_trajectories_by_their_rewards(
    step_rollouts, rewards, make, options, trajectories
):
    """The rewards α · r_bicont and (1 − α) · P_D have no baseline and weight the likelihood of the captions."""
    agents, batch, rollouts = step_rollouts
    method = make(agents, Objective(), rewards, alpha=ALPHA, **options)
    losses = compute_losses(method, batch)
    assert set(losses) == {
        "discriminator",
        *(f"{n}{suffix}" for suffix in trajectories for n in ("discriminability", "naturalness")),
    }
    for suffix, settings in trajectories.items():
        message = rollouts.get_message(TeacherForcing() if suffix else rewards.search_trajectory)
        reward = compute_contrastive_reward(
            rewards, rollouts, message if suffix else rollouts.get_message(rewards.search), **settings
        )
        for name, weight, value in (
            ("discriminability", ALPHA, reward),
            ("naturalness", 1 - ALPHA, compute_human_probability(rewards, message)),
        ):
            assert float(value.std()) > 1e-3
            assert_same_gradients(
                losses[name + suffix], weight * compute_likelihood_loss(value, message), agents.speaker
            )


@pytest.mark.parametrize("make", [wtf, rl, rl_unidirectional, wtf_rl, scst_discriminator])
@pytest.mark.parametrize(("alpha", "kept"), [(0.0, "naturalness"), (1.0, "discriminability")])
def test_alpha_weighs_the_retriever_against_the_discriminator(toy, rewards, make, alpha, kept):
    terms = [term for term in make(toy.agents(), Objective(), rewards, alpha=alpha).terms if term.weight]
    assert {term.name.removesuffix("_of_human") for term in terms} == {"discriminator", kept}
    assert {term.weight for term in terms} == {1.0}
    assert make.__defaults__[0] == 0.94


def compute_equation_3(rewards, rollouts, batch) -> torch.Tensor:
    """Return −[r(x_bs) log p(x_bs) + r(x_gt) log p(x_gt)], a mean over images."""
    total = torch.zeros(())
    for channel, captions in (
        (rewards.search_trajectory, rollouts.get_message(rewards.search)),
        (TeacherForcing(), rollouts.get_message(TeacherForcing(requires_grad=False))),
    ):
        message = rollouts.get_message(channel)
        human = compute_human_probability(rewards, captions)
        reward = ALPHA * compute_contrastive_reward(rewards, rollouts, captions) + (1 - ALPHA) * human
        for n in range(len(message)):
            total = total - reward[n] * message.log_probs[n].sum() / len(batch)
    return total


def test_equation_3_is_a_mean_over_captions_where_asked(step_rollouts, rewards):
    """A mean over words, as in the other methods, gives captions of different lengths different weights."""
    agents, batch, rollouts = step_rollouts
    expected = compute_equation_3(rewards, rollouts, batch)
    found = {}
    for weighting in ("word", "caption"):
        losses = compute_losses(wtf_rl(agents, Objective(), rewards, alpha=ALPHA, weighting=weighting), batch)
        losses.pop("discriminator")
        found[weighting] = torch.stack(list(losses.values())).sum()
    assert_same_gradients(found["caption"], expected, agents.speaker)
    default = compute_losses(wtf_rl(agents, Objective(), rewards, alpha=ALPHA), batch)
    default.pop("discriminator")
    assert_same_gradients(torch.stack(list(default.values())).sum(), found["word"], agents.speaker)
    flat = [torch.cat([g.flatten() for g in compute_gradients(loss, agents.speaker)]) for loss in found.values()]
    assert float(torch.cosine_similarity(*flat, dim=0)) < 0.9999
    lengths = [rollouts.get_message(channel).mask.sum() for channel in (rewards.search, TeacherForcing())]
    assert lengths[0] != lengths[1]


def test_scst_with_discriminator_has_a_baseline_for_the_cosine_alone(step_rollouts, rewards):
    agents, batch, rollouts = step_rollouts
    losses = compute_losses(scst_discriminator(agents, Objective(), rewards, alpha=ALPHA), batch)
    message, greedy = rollouts.get_message(rewards.search_trajectory), rollouts.get_message(Greedy())
    cosines, baselines = (
        torch.tensor([cosine(rewards, captions, n, int(image)) for n, image in enumerate(captions.images)])
        for captions in (message, greedy)
    )
    assert (cosines != baselines).any()
    assert set(losses) == {"discriminator", "discriminability", "naturalness"}
    expected = ALPHA * compute_likelihood_loss(cosines - baselines, message)
    assert_same_gradients(losses["discriminability"], expected, agents.speaker)
    expected = (1 - ALPHA) * compute_likelihood_loss(compute_human_probability(rewards, message), message)
    assert_same_gradients(losses["naturalness"], expected, agents.speaker)


@pytest.mark.parametrize("options", [{}, {"similarity": 0.5, "grammar": 3.0}], ids=str)
def test_scst_with_grammar_has_a_baseline_for_both_and_updates_the_speaker_alone(step_rollouts, rewards, options):
    agents, batch, rollouts = step_rollouts
    method = scst_grammar(agents, Objective(), rewards, **options)
    losses = compute_losses(method, batch)
    message, greedy = rollouts.get_message(rewards.search_trajectory), rollouts.get_message(Greedy())
    clip, grammar = [], []
    for captions in (message, greedy):
        own = [cosine(rewards, captions, n, int(image)) for n, image in enumerate(captions.images)]
        clip.append(torch.tensor([2.5 * max(c, 0) for c in own]))
        grammar.append(compute_human_probability(rewards, captions, "grammar"))
    weights = {"similarity": 2.0, "grammar": 1.0} | options
    expected = weights["similarity"] * compute_likelihood_loss(clip[0] - clip[1], message)
    assert_same_gradients(losses["discriminability"], expected, agents.speaker)
    expected = weights["grammar"] * compute_likelihood_loss(grammar[0] - grammar[1], message)
    assert_same_gradients(losses["naturalness"], expected, agents.speaker)
    assert set(losses) == {"discriminability", "naturalness"}
    assert method.schedule.all_roles == {"speaker"}
    assert method.validation_judges == rewards.validation_judges


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_psst_with_the_contrastive_reward_differentiates_both_scores_pathwise(step_rollouts, rewards, toy, reduction):
    """The weighted scores are λα · Eq. 2 with the trained listener, λ(1 − α) · P_D, and (1 − λ) · CIDEr-D."""
    agents, batch, rollouts = step_rollouts
    lam, options = 0.3, {"rho": 0.6, "mix": "token", "feed": "sample"}
    method = psst_wtf(agents, Objective(reduction=reduction), rewards, lam, alpha=ALPHA, **options)
    losses = compute_losses(method, batch)
    message = rollouts.get_message(PartialSampling(StraightThrough(), 0.6, "token", "sample"))
    logits = agents.listener.encode_text(message) @ agents.listener.encode_image(batch.pooled).T / TAU
    diagonal = torch.eye(len(batch), dtype=torch.bool)
    own, negatives = logits.diagonal(), logits.masked_fill(diagonal, -torch.inf)
    reward = TAU * (2 * own - negatives.logsumexp(0) - negatives.logsumexp(1))
    total = torch.sum if reduction == "sum" else torch.mean
    for agent in (agents.speaker, agents.listener):
        assert_same_gradients(losses["discriminability"], -lam * ALPHA * total(reward), agent)
    vectors = rewards.retriever.vectors[message.images], rewards.retriever.encoder.encode_text(message)
    human_probability = rewards.discriminator.layers(torch.cat(vectors, 1)).softmax(1)[:, 1]
    assert_same_gradients(losses["human"], -lam * (1 - ALPHA) * total(human_probability), agents.speaker)
    assert_same_gradients(losses["human"], losses["human"], rewards.discriminator, zero=True)
    samples, greedy = rollouts.get_message(Multinomial()), rollouts.get_message(Greedy())
    advantage = toy.cider(samples.tokens, samples.images) - toy.cider(greedy.tokens, greedy.images)
    assert_same_gradients(
        losses["naturalness"], (1 - lam) * compute_likelihood_loss(advantage, samples), agents.speaker
    )
    assert method.schedule.list_updates(0) == (frozenset({"discriminator"}), frozenset({"speaker", "listener"}))


def test_sampled_rl_weighs_the_contrastive_reward_against_cider_of_the_same_samples(step_rollouts, rewards, toy):
    agents, batch, rollouts = step_rollouts
    method = rl_sampled(agents, Objective(), rewards, lam=0.3)
    losses = compute_losses(method, batch)
    assert {term.name: (term.weight, term.updates) for term in method.terms} == {
        "discriminability": (0.3, frozenset({"speaker"})),
        "naturalness": (0.7, frozenset({"speaker"})),
    }
    samples, greedy = rollouts.get_message(Multinomial()), rollouts.get_message(Greedy())
    advantage = toy.cider(samples.tokens, samples.images) - toy.cider(greedy.tokens, greedy.images)
    assert_same_gradients(losses["naturalness"], 0.7 * compute_likelihood_loss(advantage, samples), agents.speaker)
    human = rollouts.get_message(TeacherForcing(requires_grad=False))
    # each caption's negatives are the other captions of its own channel, and all human captions
    reward, baseline = (
        compute_contrastive_reward(rewards, rollouts, each, captions=(each, human)) for each in (samples, greedy)
    )
    expected = 0.3 * compute_likelihood_loss(reward - baseline, samples)
    assert_same_gradients(losses["discriminability"], expected, agents.speaker)


def test_psst_refuses_a_retriever_of_texts(toy, rewards):
    text_retriever = Retriever(torch.nn.Identity(), rewards.retriever.vectors, TAU, str)
    assert not text_retriever.differentiable
    with pytest.raises(UserError, match=r"psst_wtf: expected a retriever that .*; set retriever.model to a listener"):
        psst_wtf(toy.agents(), Objective(), replace(rewards, retriever=text_retriever), lam=0.3)


def test_terms_of_weight_zero_are_left_out(toy, rewards):
    for lam, alpha, names in ((1.0, 1.0, {"discriminability"}), (1.0, 0.5, {"discriminability", "human"})):
        method = psst_wtf(toy.agents(), Objective(), rewards, lam, alpha=alpha)
        assert {term.name for term in method.terms if term.name != "discriminator"} == names
