"""PSST and the methods it is compared with: each loss written out from the captions that the method generates."""

from dataclasses import replace

import pytest
import torch
from by_hand import assert_same_gradients, likelihood_loss, losses_of

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
PASSED = {"rho": 0.6, "mix": "token", "feed": "sample"}
WARM = {"temperature": 0.7}
K3 = WARM | {"k": 3}
# method, its options, the channel that the hinge's gradient crosses
THROUGH = [
    (psst_multinomial, {}, PartialSampling(StraightThrough(), 0.25, "caption", "distribution")),
    (psst_multinomial, PASSED, PartialSampling(StraightThrough(), 0.6, "token", "sample")),
    (psst_gumbel, {}, PartialSampling(Gumbel(temperature=1.0), 0.25, "caption", "distribution")),
    (psst_gumbel, PASSED | WARM, PartialSampling(Gumbel(temperature=0.7), 0.6, "token", "sample")),
    (psst_reinmax, {}, PartialSampling(ReinMax(temperature=1.0), 0.25, "caption", "distribution")),
    (psst_reinmax, PASSED | WARM, PartialSampling(ReinMax(temperature=0.7), 0.6, "token", "sample")),
    (psst_gumbel_rao, {}, PartialSampling(GumbelRao(temperature=1.0, k=10), 0.25, "caption", "distribution")),
    (psst_gumbel_rao, PASSED | K3, PartialSampling(GumbelRao(temperature=0.7, k=3), 0.6, "token", "sample")),
    (st_multinomial, {}, StraightThrough()),
    (st_gumbel, {}, Gumbel(temperature=1.0)),
    (st_gumbel, WARM, Gumbel(temperature=0.7)),
    (st_reinmax, {}, ReinMax(temperature=1.0)),
    (st_reinmax, WARM, ReinMax(temperature=0.7)),
    (st_gumbel_rao, {}, GumbelRao(temperature=1.0, k=10)),
    (st_gumbel_rao, K3, GumbelRao(temperature=0.7, k=3)),
]
NAMES = [f"{method.__name__}-{len(options)}" for method, options, _ in THROUGH]


def with_ending(channel, ending: str):
    """Return the same channel with another `ending`."""
    inner = isinstance(channel, PartialSampling)
    return (
        replace(channel, inner=with_ending(channel.inner, ending)) if inner else replace(channel, eos_gradient=ending)
    )


@pytest.mark.parametrize(("reduction", "ending"), [("sum", "soft"), ("mean", "constant")])
@pytest.mark.parametrize(("make", "options", "channel"), THROUGH, ids=NAMES)
def test_the_hinge_is_pathwise_and_cider_a_score_function(toy, make, options, channel, reduction, ending):
    """λ · hinge through the relaxed captions + (1 − λ) · CIDEr-D of ordinary samples minus the greedy caption's."""
    agents, batch = toy.agents(), toy.batch()
    method = make(agents, Objective(reduction=reduction, margin=0.4, eos_gradient=ending), LAM, **options)
    losses = losses_of(method, batch)
    assert set(losses) == {"discriminability", "naturalness"}
    rollouts = StepRollouts(agents.speaker, batch, seed=1)
    hinge = Hinge(agents.listener, 0.4)(rollouts.of(with_ending(channel, ending)), batch)
    expected = -LAM * (hinge.sum() if reduction == "sum" else hinge.mean())
    for agent in (agents.speaker, agents.listener):
        assert_same_gradients(losses["discriminability"], expected, agent)
    message, greedy = rollouts.of(Multinomial()), rollouts.of(Greedy())
    advantage = toy.cider(message.tokens, message.images) - toy.cider(greedy.tokens, greedy.images)
    assert_same_gradients(losses["naturalness"], (1 - LAM) * likelihood_loss(advantage, message), agents.speaker)
    assert_same_gradients(losses["naturalness"], losses["naturalness"], agents.listener, zero=True)
    assert [method.schedule.learners(step) for step in range(3)] == [{"speaker", "listener"}] * 3


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
    """Speaker and listener take turns; CIDEr-D keeps its greedy baseline."""
    agents, batch = toy.agents(), toy.batch()
    method = reinforce(agents, Objective(), LAM, **options)
    assert [method.schedule.learners(step) for step in range(4)] == [{"speaker"}, {"listener"}] * 2
    losses = losses_of(method, batch)
    assert set(losses) == {"discriminability", "naturalness"}
    rollouts, hinge = StepRollouts(agents.speaker, batch, seed=1), Hinge(agents.listener, 0.2)
    message = rollouts.of(Multinomial())
    value = hinge(message, batch)
    expected = torch.zeros_like(value) if channel is None else hinge(rollouts.of(channel), batch)
    assert_same_gradients(losses["discriminability"], LAM * likelihood_loss(value - expected, message), agents.speaker)
    greedy = rollouts.of(Greedy())
    advantage = toy.cider(message.tokens, message.images) - toy.cider(greedy.tokens, greedy.images)
    assert_same_gradients(losses["naturalness"], (1 - LAM) * likelihood_loss(advantage, message), agents.speaker)


def test_reinforces_listener_minimises_the_mean_hinge_of_the_same_samples(toy):
    agents, batch = toy.agents(), toy.batch(step=1)
    losses = losses_of(reinforce(agents, Objective(), LAM), batch)
    assert set(losses) == {"listening"}
    message = StepRollouts(agents.speaker.eval(), batch, seed=1).of(Multinomial())
    assert_same_gradients(losses["listening"], -LAM * Hinge(agents.listener)(message, batch).mean(), agents.listener)
    assert all(not p.requires_grad for p in agents.speaker.parameters())


@pytest.mark.parametrize("samples", [1, 3])
def test_luos_speaker_is_rewarded_by_both_scores_and_the_listener_stays_unchanged(toy, samples):
    agents, batch = toy.agents(), toy.batch()
    method = luo(agents, Objective(samples=samples), LAM)
    losses = losses_of(method, batch)
    assert [method.schedule.learners(step) for step in range(3)] == [{"speaker"}] * 3
    rollouts, hinge = StepRollouts(agents.speaker, batch, seed=1), Hinge(agents.listener, 0.2)
    message, greedy = rollouts.of(Multinomial(samples)), rollouts.of(Greedy())
    for name, weight, score in (
        ("discriminability", LAM, lambda captions: hinge(captions, batch)),
        ("naturalness", 1 - LAM, lambda captions: toy.cider(captions.tokens, captions.images)),
    ):
        advantage = score(message) - score(greedy).repeat_interleave(samples)
        assert_same_gradients(losses[name], weight * likelihood_loss(advantage, message), agents.speaker)


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_a_term_of_weight_0_is_left_out(toy, lam):
    kept = "naturalness" if lam == 0 else "discriminability"
    for make in (psst_multinomial, luo):
        assert set(losses_of(make(toy.agents(), Objective(), lam), toy.batch())) == {kept}
    assert {term.name for term in reinforce(toy.agents(), Objective(), lam).terms} == (
        {kept} if lam == 0 else {kept, "listening"}
    )


def test_the_anchor_is_cross_entropy_of_human_captions_times_1_minus_lambda(toy):
    agents, batch = toy.agents(), toy.batch()
    losses = losses_of(psst_multinomial(agents, Objective(cross_entropy_weight=0.5), LAM), batch)
    message = StepRollouts(agents.speaker, batch, seed=1).of(TeacherForcing())
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
    """Over the batch, or over an image's three samples; the scaling uses the sample's n − 1 for the image alone."""
    agents, batch = toy.agents(), toy.batch()
    rollouts = StepRollouts(agents.speaker, batch, seed=1)
    message, greedy = rollouts.of(Multinomial(3)), rollouts.of(Greedy())
    value = toy.cider(message.tokens, message.images)
    advantage = value - toy.cider(greedy.tokens, greedy.images).repeat_interleave(3)
    groups = advantage.view(8, 3)
    expected = {
        ("none", False): advantage,
        ("none", True): advantage - advantage.mean(),
        ("group", False): (groups / (groups.std(1, keepdim=True) + 1e-4)).flatten(),
        ("batch", False): advantage / (advantage.std(correction=0) + 1e-4),
    }
    for (scaling, centred), wanted in expected.items():
        objective = Objective(samples=3, advantage_scaling=scaling, centre_advantages=centred)
        losses = losses_of(luo(agents, objective, LAM), batch)
        assert_same_gradients(losses["naturalness"], (1 - LAM) * likelihood_loss(wanted, message), agents.speaker)


def test_the_pathwise_hinge_updates_both_agents_and_likelihood_the_speaker(toy):
    for method, learners in ((psst_multinomial, {"speaker", "listener"}), (reinforce, {"speaker"})):
        terms = {term.name: term.updates for term in method(toy.agents(), Objective(), 0.3).terms}
        assert terms["discriminability"] == learners
        assert terms["naturalness"] == {"speaker"}
