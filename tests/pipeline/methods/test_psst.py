"""PSST and the methods that it is compared with: each loss by hand, from the captions that the method generates."""

from dataclasses import replace

import pytest
import torch
from expected_losses import assert_same_gradients, compute_likelihood_loss, compute_losses

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import Gumbel, GumbelRao, ReinMax, StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.joint import Objective
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.methods.gumbel_rao import psst_gumbel_rao, st_gumbel_rao
from pipeline.methods.luo import luo
from pipeline.methods.psst import psst_gumbel, psst_multinomial, reinforce, st_gumbel, st_multinomial
from pipeline.methods.reinmax import psst_reinmax, st_reinmax
from pipeline.scores.discriminability import Hinge

LAM = 0.3
CAPTION_MIXTURE = {"rho": 0.6, "mix": "caption", "feed": "sample"}
LOW_TAU = {"temperature": 0.7}
K3 = LOW_TAU | {"k": 3}
# method, its options, the channel of the pathwise hinge
PATHWISE = [
    (psst_multinomial, {}, PartialSampling(StraightThrough(), 0.75, "token", "distribution")),
    (psst_multinomial, CAPTION_MIXTURE, PartialSampling(StraightThrough(), 0.6, "caption", "sample")),
    (psst_gumbel, {}, PartialSampling(Gumbel(temperature=1.0), 0.75, "token", "distribution")),
    (psst_gumbel, CAPTION_MIXTURE | LOW_TAU, PartialSampling(Gumbel(temperature=0.7), 0.6, "caption", "sample")),
    (psst_reinmax, {}, PartialSampling(ReinMax(temperature=1.0), 0.75, "token", "distribution")),
    (psst_reinmax, CAPTION_MIXTURE | LOW_TAU, PartialSampling(ReinMax(temperature=0.7), 0.6, "caption", "sample")),
    (psst_gumbel_rao, {}, PartialSampling(GumbelRao(temperature=1.0, k=10), 0.75, "token", "distribution")),
    (psst_gumbel_rao, CAPTION_MIXTURE | K3, PartialSampling(GumbelRao(temperature=0.7, k=3), 0.6, "caption", "sample")),
    (st_multinomial, {}, StraightThrough()),
    (st_gumbel, {}, Gumbel(temperature=1.0)),
    (st_gumbel, LOW_TAU, Gumbel(temperature=0.7)),
    (st_reinmax, {}, ReinMax(temperature=1.0)),
    (st_reinmax, LOW_TAU, ReinMax(temperature=0.7)),
    (st_gumbel_rao, {}, GumbelRao(temperature=1.0, k=10)),
    (st_gumbel_rao, K3, GumbelRao(temperature=0.7, k=3)),
]
NAMES = [f"{method.__name__}-{len(options)}" for method, options, _ in PATHWISE]


def replace_eos_gradient(channel, eos_gradient: str):
    """Return a copy of `channel` with the option `eos_gradient`."""
    if isinstance(channel, PartialSampling):
        return replace(channel, inner=replace_eos_gradient(channel.inner, eos_gradient))
    return replace(channel, eos_gradient=eos_gradient)


@pytest.mark.parametrize(("reduction", "eos_gradient"), [("sum", "soft"), ("mean", "constant")])
@pytest.mark.parametrize(("make", "options", "channel"), PATHWISE, ids=NAMES)
def test_the_hinge_is_pathwise_and_cider_a_score_function(toy, make, options, channel, reduction, eos_gradient):
    """The hinge of relaxed captions has the weight λ; CIDEr-D minus that of the greedy caption has the weight 1 − λ."""
    agents, batch = toy.agents(), toy.batch()
    method = make(agents, Objective(reduction=reduction, margin=0.4, eos_gradient=eos_gradient), LAM, **options)
    losses = compute_losses(method, batch)
    assert set(losses) == {"discriminability", "naturalness"}
    rollouts = StepRollouts(agents.speaker, batch, seed=1)
    hinge = Hinge(agents.listener, 0.4)(rollouts.get_message(replace_eos_gradient(channel, eos_gradient)), batch)
    expected = -LAM * (hinge.sum() if reduction == "sum" else hinge.mean())
    for agent in (agents.speaker, agents.listener):
        assert_same_gradients(losses["discriminability"], expected, agent)
    message, greedy = rollouts.get_message(Multinomial()), rollouts.get_message(Greedy())
    advantage = toy.cider(message.tokens, message.images) - toy.cider(greedy.tokens, greedy.images)
    assert_same_gradients(
        losses["naturalness"], (1 - LAM) * compute_likelihood_loss(advantage, message), agents.speaker
    )
    assert_same_gradients(losses["naturalness"], losses["naturalness"], agents.listener, zero=True)
    assert [method.schedule.roles(step) for step in range(3)] == [{"speaker", "listener"}] * 3


@pytest.mark.parametrize(
    ("options", "channel"),
    [
        ({}, TeacherForcing(requires_grad=False)),
        ({"baseline": "ground_truth"}, TeacherForcing(requires_grad=False)),
        ({"baseline": "greedy"}, Greedy()),
        ({"baseline": "none"}, None),
    ],
    ids=str,
)
def test_reinforce_subtracts_the_hinge_of_the_human_caption_by_default(toy, options, channel):
    """Updates of speaker and listener alternate; CIDEr-D keeps its greedy baseline."""
    agents, batch = toy.agents(), toy.batch()
    method = reinforce(agents, Objective(), LAM, **options)
    assert [method.schedule.roles(step) for step in range(4)] == [{"speaker"}, {"listener"}] * 2
    losses = compute_losses(method, batch)
    assert set(losses) == {"discriminability", "naturalness"}
    rollouts, hinge = StepRollouts(agents.speaker, batch, seed=1), Hinge(agents.listener, 0.2)
    message = rollouts.get_message(Multinomial())
    value = hinge(message, batch)
    expected = torch.zeros_like(value) if channel is None else hinge(rollouts.get_message(channel), batch)
    assert_same_gradients(
        losses["discriminability"], LAM * compute_likelihood_loss(value - expected, message), agents.speaker
    )
    greedy = rollouts.get_message(Greedy())
    advantage = toy.cider(message.tokens, message.images) - toy.cider(greedy.tokens, greedy.images)
    assert_same_gradients(
        losses["naturalness"], (1 - LAM) * compute_likelihood_loss(advantage, message), agents.speaker
    )


def test_reinforces_listener_minimises_the_mean_hinge_of_the_same_samples(toy):
    agents, batch = toy.agents(), toy.batch(step=1)
    losses = compute_losses(reinforce(agents, Objective(), LAM), batch)
    assert set(losses) == {"matching"}
    message = StepRollouts(agents.speaker.eval(), batch, seed=1).get_message(Multinomial())
    assert_same_gradients(losses["matching"], -LAM * Hinge(agents.listener)(message, batch).mean(), agents.listener)
    assert all(not p.requires_grad for p in agents.speaker.parameters())


@pytest.mark.parametrize("samples", [1, 3])
def test_luos_speaker_is_rewarded_by_both_scores_and_the_listener_stays_unchanged(toy, samples):
    agents, batch = toy.agents(), toy.batch()
    method = luo(agents, Objective(samples=samples), LAM)
    losses = compute_losses(method, batch)
    assert [method.schedule.roles(step) for step in range(3)] == [{"speaker"}] * 3
    rollouts, hinge = StepRollouts(agents.speaker, batch, seed=1), Hinge(agents.listener, 0.2)
    message, greedy = rollouts.get_message(Multinomial(samples)), rollouts.get_message(Greedy())
    for name, weight, score in (
        ("discriminability", LAM, lambda captions: hinge(captions, batch)),
        ("naturalness", 1 - LAM, lambda captions: toy.cider(captions.tokens, captions.images)),
    ):
        advantage = score(message) - score(greedy).repeat_interleave(samples)
        assert_same_gradients(losses[name], weight * compute_likelihood_loss(advantage, message), agents.speaker)


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_a_term_of_weight_0_is_left_out(toy, lam):
    kept = "naturalness" if lam == 0 else "discriminability"
    for make in (psst_multinomial, luo):
        assert set(compute_losses(make(toy.agents(), Objective(), lam), toy.batch())) == {kept}
    assert {term.name for term in reinforce(toy.agents(), Objective(), lam).terms} == (
        {kept} if lam == 0 else {kept, "matching"}
    )


def test_cross_entropy_of_human_captions_is_weighted_by_1_minus_lambda(toy):
    agents, batch = toy.agents(), toy.batch()
    losses = compute_losses(psst_multinomial(agents, Objective(cross_entropy_weight=0.5), LAM), batch)
    message = StepRollouts(agents.speaker, batch, seed=1).get_message(TeacherForcing())
    expected = (1 - LAM) * 0.5 * -message.log_probs[message.mask].mean()
    assert_same_gradients(losses["cross_entropy"], expected, agents.speaker)


@pytest.mark.parametrize("make", [psst_multinomial, luo, reinforce])
def test_the_greedy_baseline_keeps_its_dropout_only_where_asked(toy, make):
    for dropout in (False, True):
        method = make(toy.agents(), Objective(greedy_dropout=dropout), LAM)
        estimator = next(term.estimator for term in method.terms if term.name == "naturalness")
        assert isinstance(estimator, ScoreFunction)
        assert estimator.baseline.channel == Greedy(dropout)


def test_the_objective_centres_and_scales_the_advantages_of_score_functions(toy):
    """Centring and "batch" use the batch, with the divisor n; "group" uses an image's samples and the divisor n − 1."""
    agents, batch = toy.agents(), toy.batch()
    rollouts = StepRollouts(agents.speaker, batch, seed=1)
    message, greedy = rollouts.get_message(Multinomial(3)), rollouts.get_message(Greedy())
    value = toy.cider(message.tokens, message.images)
    advantage = value - toy.cider(greedy.tokens, greedy.images).repeat_interleave(3)
    groups = advantage.view(8, 3)
    expected = {
        ("none", False): advantage,
        ("none", True): advantage - advantage.mean(),
        ("group", False): (groups / (groups.std(1, keepdim=True) + 1e-4)).flatten(),
        ("batch", False): advantage / (advantage.std(correction=0) + 1e-4),
    }
    for (scaling, centred), expected_advantage in expected.items():
        objective = Objective(samples=3, advantage_scaling=scaling, centre_advantages=centred)
        losses = compute_losses(luo(agents, objective, LAM), batch)
        assert_same_gradients(
            losses["naturalness"], (1 - LAM) * compute_likelihood_loss(expected_advantage, message), agents.speaker
        )


def test_the_pathwise_hinge_updates_both_agents_and_score_functions_the_speaker(toy):
    for method, roles in ((psst_multinomial, {"speaker", "listener"}), (reinforce, {"speaker"})):
        terms = {term.name: term.updates for term in method(toy.agents(), Objective(), 0.3).terms}
        assert terms["discriminability"] == roles
        assert terms["naturalness"] == {"speaker"}
