"""Identities between compositions: methods that must be equal."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import Gumbel, GumbelRao, ReinMax, StraightThrough
from pipeline.channels.teacher_forcing import ScheduledSampling, TeacherForcing
from pipeline.composition import joint
from pipeline.composition.joint import Objective
from pipeline.composition.method import Method, Term, UpdateSchedule
from pipeline.composition.pretraining import build_listener_adaptation, build_listener_matching, build_teacher_forcing
from pipeline.errors import UserError
from pipeline.estimators.baselines import BatchStd, CentredBaseline, GroupMean, GroupStd, LeaveOneOut
from pipeline.estimators.critic_baseline import CriticBaseline, CriticLoss
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import Detached, NoBaseline, Pathwise, ScoreFunction
from pipeline.methods.luo import luo
from pipeline.methods.mixer import mixer
from pipeline.methods.psst import psst_multinomial, reinforce, st_gumbel, st_multinomial
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.unroll import generate, teacher_force
from pipeline.random import BatchRandom
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import CiderScore
from pipeline.types import Batch, make_caption_mask


def compute_gradients(method: Method, batch, seed: int = 3) -> dict[str, torch.Tensor]:
    method.freeze(batch.step)
    losses, _ = method.step(batch, seed)
    sum(losses.values()).backward()
    found = {}
    for role, agent in method.agents.items():
        for name, parameter in agent.named_parameters():
            if parameter.grad is not None:
                found[f"{role}.{name}"] = parameter.grad.clone()
            parameter.grad = None
    return found


def check_equal(left: dict, right: dict, **tolerance) -> None:
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], msg=lambda text, n=name: f"{n}: {text}", **tolerance)


def make_rng(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_random(captions: int) -> BatchRandom:
    """Return the source of random numbers for a batch of captions."""
    nothing = torch.zeros(captions, 1)
    return BatchRandom(Batch(torch.arange(captions), nothing, nothing, nothing, nothing), make_rng())


def test_mle_is_the_cross_entropy(toy):
    agents, batch = toy.agents(), toy.batch()
    by_method = compute_gradients(build_teacher_forcing(agents.roles), batch)
    mask = make_caption_mask(batch.captions)
    speaker = agents.speaker
    hidden, _ = Decoder.teacher_force(
        speaker, batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None))
    )
    logits = speaker.logit(hidden).view(*mask.shape, -1)
    loss = F.cross_entropy(logits[mask], batch.captions[mask])
    loss.backward()
    for name, parameter in speaker.named_parameters():
        torch.testing.assert_close(parameter.grad, by_method[f"speaker.{name}"])


def test_teacher_forcing_is_the_unroll_through_forced_tokens(toy):
    agents, batch = toy.agents(), toy.batch()
    agents.speaker.eval()
    forced = teacher_force(agents.speaker, batch)
    unrolled = generate(agents.speaker, batch, TeacherForcing(), make_rng())
    steps = unrolled.tokens.shape[1]
    assert torch.equal(forced.tokens[:, :steps], unrolled.tokens)
    assert not forced.mask[:, steps:].any()
    torch.testing.assert_close(forced.log_probs[:, :steps], unrolled.log_probs)


def test_scheduled_sampling_with_share_0_is_teacher_forcing(toy):
    batch = toy.batch()
    check_equal(
        compute_gradients(build_teacher_forcing(toy.agents().roles), batch),
        compute_gradients(build_teacher_forcing(toy.agents().roles, ScheduledSampling(start=0)), batch),
    )


class ExtraDraws:
    """A mixin of straight-through channels that draws and ignores the numbers by which PartialSampling chooses."""

    mix = "caption"

    def open(self, batch, vocabulary, rng):
        def draw_unused() -> None:
            torch.rand(len(batch), generator=rng)

        if self.mix == "caption":
            draw_unused()
        step = super().open(batch, vocabulary, rng)

        def step_and_draw(t, logits, rows):
            choice = step(t, logits, rows)
            if self.mix == "token":
                draw_unused()
            return choice

        return step_and_draw


class ExtraDrawsMultinomial(ExtraDraws, StraightThrough):
    pass


class ExtraDrawsGumbel(ExtraDraws, Gumbel):
    pass


class ExtraDrawsMultinomialByToken(ExtraDrawsMultinomial):
    mix = "token"


class ExtraDrawsGumbelByToken(ExtraDrawsGumbel):
    mix = "token"


@pytest.mark.parametrize(
    ("plain", "inner"),
    [
        (ExtraDrawsMultinomial(), StraightThrough()),
        (ExtraDrawsMultinomialByToken(), StraightThrough()),
        (ExtraDrawsGumbel(temperature=0.7), Gumbel(temperature=0.7)),
        (ExtraDrawsGumbelByToken(temperature=0.7), Gumbel(temperature=0.7)),
    ],
)
def test_psst_without_full_distributions_is_straight_through(toy, plain, inner):
    agents, batch = toy.agents(), toy.batch()
    speaker, hinge = agents.speaker, Hinge(agents.listener)
    weights = [*speaker.parameters(), *agents.listener.parameters()]
    found = []
    for channel in (plain, PartialSampling(inner, rho=0.0, mix=plain.mix)):
        message = generate(speaker, batch, channel, make_rng())
        loss = hinge(message, batch).sum()
        found.append((message.tokens, *torch.autograd.grad(loss, weights)))
    assert (found[0][0] > 0).sum() > 10, "expected more than ten tokens in total"
    assert any(g.abs().max() > 1e-4 for g in found[0][1:5])
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("mix", ["caption", "token"])
def test_psst_of_full_distributions_is_the_deterministic_mapper(toy, mix):
    agents, batch = toy.agents(), toy.batch()
    speaker = agents.speaker
    message = generate(speaker, batch, PartialSampling(rho=1.0, mix=mix), make_rng())
    distributions = message.distributions(speaker.vocabulary)
    state = speaker.begin(batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None)), 1)
    inputs = F.one_hot(torch.full((len(batch),), speaker.vocabulary + 1), speaker.vocabulary + 2).float()
    expected_sum = torch.zeros(())
    for t in range(message.tokens.shape[1]):
        hidden, state = speaker.step(inputs @ speaker.word.weight, state)
        expected = speaker.logit(hidden).softmax(-1)
        inputs = F.pad(expected, (0, 1))
        is_word = message.tokens[:, t] > 0
        torch.testing.assert_close(distributions[is_word, t], expected[is_word])
        expected_sum = expected_sum + expected[is_word, 3].sum()
        padding = distributions[~is_word, t]
        assert torch.equal(padding, F.one_hot(torch.zeros(len(padding), dtype=torch.int64), 13).float())
    assert (message.tokens > 0).any()
    parameters = list(speaker.parameters())
    gradients = torch.autograd.grad(distributions[..., 3].sum(), parameters)
    for gradient, expected in zip(gradients, torch.autograd.grad(expected_sum, parameters), strict=True):
        torch.testing.assert_close(gradient, expected)
    assert gradients[0].abs().sum() > 0


def test_distributions_with_feed_sample_follow_the_sampled_tokens(toy):
    speaker, batch = toy.agents().speaker, toy.batch()
    message = generate(speaker, batch, PartialSampling(rho=1.0, feed="sample"), make_rng())
    forced = batch.to("cpu")
    forced.captions[:, : message.tokens.shape[1]] = message.tokens
    forced.captions[:, message.tokens.shape[1] :] = 0
    again = teacher_force(speaker, forced)
    soft = message.distributions(speaker.vocabulary).gather(2, message.tokens.unsqueeze(2)).squeeze(2)
    words = message.tokens > 0
    torch.testing.assert_close(soft[words].log(), again.log_probs[:, : words.shape[1]][words])


def test_luo_is_reinforce_on_the_mixed_reward(toy):
    """Both terms share samples, greedy captions and the number of words, so their sum is a term with a mixed score."""
    batch, lam = toy.batch(), 0.7

    class Mixture:
        differentiable = False

        def __init__(self, agents):
            self.hinge, self.cider = Hinge(agents.listener), agents.cider

        def __call__(self, message, batch):
            natural = self.cider(message.tokens, batch.images[message.images])
            return lam * self.hinge(message, batch).detach() + (1 - lam) * natural

    agents = toy.agents()
    mixed = Method(
        agents.roles,
        (Term("mixture", 1.0, Mixture(agents), joint.score_function(Objective())),),
        UpdateSchedule((frozenset({"speaker"}),)),
    )
    check_equal(compute_gradients(luo(toy.agents(), Objective(), lam), batch), compute_gradients(mixed, batch))


def test_the_speaker_step_of_reinforce_is_luo(toy):
    """With the greedy baseline, `reinforce` and `luo` differ in the update of the listener alone."""
    method = reinforce(toy.agents(), Objective(), 0.7, baseline="greedy")
    check_equal(
        compute_gradients(method, toy.batch(0)), compute_gradients(luo(toy.agents(), Objective(), 0.7), toy.batch(0))
    )


def test_the_listener_step_of_reinforce_is_adaptation(toy):
    batch, lam = toy.batch(1), 0.7
    agents = toy.agents()
    expected = compute_gradients(
        build_listener_adaptation(agents.speaker, agents.listener, Hinge(agents.listener)), batch
    )
    found = compute_gradients(reinforce(toy.agents(), Objective(), lam), batch)
    check_equal(found, {name: lam * gradient for name, gradient in expected.items()})


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_hinge_of_a_listener_alone_is_averaged_or_summed_over_the_batch(toy, reduction):
    agents, batch = toy.agents(), toy.batch(1)
    hinge = Hinge(agents.listener)
    objective = Objective(listener_reduction=reduction)
    for method, channel, lam in (
        (build_listener_matching(agents.listener, hinge, reduction), TeacherForcing(requires_grad=False), 1.0),
        (build_listener_adaptation(agents.speaker, agents.listener, hinge, reduction), Multinomial(), 1.0),
        (reinforce(agents, objective, 0.25), Multinomial(), 0.25),
    ):
        method.freeze(1)
        losses, _ = method.step(batch, seed=3)
        values = hinge(StepRollouts(agents.speaker, batch, 3).get_message(channel), batch)  # (8,), one per image
        expected = sum(values.tolist()) / (len(values) if reduction == "mean" else 1)
        assert float(sum(losses.values()).detach()) == pytest.approx(-lam * expected)
        assert abs(expected) > 0.1


def compute_naturalness(method, batch):
    """Return the loss of the term `naturalness`, its gradient for the speaker, and the reported mean CIDEr-D."""
    method.freeze(batch.step)
    losses, report = method.step(batch, seed=3)
    gradient = torch.autograd.grad(losses["naturalness"], list(method.agents["speaker"].parameters()))
    return losses["naturalness"], gradient, report["naturalness/score"]


@pytest.mark.parametrize("make", [st_multinomial, st_gumbel])
def test_cider_may_score_the_listeners_samples(toy, make):
    """The loss is −(1 − λ) Σ (CIDEr of a caption − CIDEr of the greedy one) · log p of its words / number of words."""
    agents, batch = toy.agents(), toy.batch()
    channel = StraightThrough() if make is st_multinomial else Gumbel()
    loss, gradient, score = compute_naturalness(make(agents, Objective(cider_sample="shared"), 0.25), batch)
    rollouts = StepRollouts(agents.speaker, batch, 3)
    sampled, greedy = rollouts.get_message(channel), rollouts.get_message(Greedy())
    sample_cider, greedy_cider = (toy.cider(generated.tokens, generated.images) for generated in (sampled, greedy))
    log_probs = teacher_force(agents.speaker, replace(batch, captions=sampled.tokens)).log_probs
    expected = -0.75 * ((sample_cider - greedy_cider).unsqueeze(1) * log_probs).sum() / sampled.mask.sum()
    torch.testing.assert_close(score, sample_cider.mean())
    torch.testing.assert_close(loss, expected)
    for one, other in zip(gradient, torch.autograd.grad(expected, list(agents.speaker.parameters())), strict=True):
        torch.testing.assert_close(one, other)
    own = compute_naturalness(make(toy.agents(), Objective(), 0.25), batch)
    assert not torch.isclose(own[0], loss)


def test_psst_draws_its_own_captions_for_cider(toy):
    own, shared = (
        compute_naturalness(psst_multinomial(toy.agents(), Objective(cider_sample=sample), 0.25), toy.batch())
        for sample in ("own", "shared")
    )
    assert torch.equal(own[0], shared[0])
    with pytest.raises(UserError, match="cider_sample shared: expected samples 1, got 5"):
        st_multinomial(toy.agents(), Objective(samples=5, cider_sample="shared"), 0.25)


def test_without_a_baseline_advantages_are_the_scores(toy):
    reports = {}
    for baseline in ("none", "ground_truth"):
        method = reinforce(toy.agents(), Objective(), 0.5, baseline)
        method.freeze(0)
        _, report = method.step(toy.batch(0), seed=3)
        reports[baseline] = report
    none, truth = reports["none"], reports["ground_truth"]
    torch.testing.assert_close(none["discriminability/advantage"], none["discriminability/score"])
    agents, batch = toy.agents(), toy.batch(0)
    human = Hinge(agents.listener)(
        StepRollouts(agents.speaker, batch, 3).get_message(TeacherForcing(requires_grad=False)), batch
    ).mean()
    expected = truth["discriminability/score"] - human.detach()
    torch.testing.assert_close(truth["discriminability/advantage"], expected)


def test_gumbel_softmax_is_uniform_at_high_and_one_hot_at_low_temperature():
    logits = torch.randn(50, 13)
    index, noise = Gumbel().sample(logits, make_random(50), torch.arange(50))
    hot, cold = (Gumbel(temperature=t).relax(logits, noise, index) for t in (1e6, 1e-6))
    torch.testing.assert_close(hot, torch.full_like(hot, 1 / 13), atol=1e-4, rtol=0)
    torch.testing.assert_close(cold, F.one_hot(index, 13).float(), atol=1e-3, rtol=0)


def compute_hinge_gradients(toy, samples: int, baseline, **scaling) -> dict[str, torch.Tensor]:
    """Return the score-function gradients of the hinge score."""
    agents = toy.agents()
    estimator = ScoreFunction(Multinomial(samples), baseline, **scaling)
    term = Term("hinge", 1.0, Hinge(agents.listener), estimator)
    return compute_gradients(Method(agents.roles, (term,), UpdateSchedule((frozenset({"speaker"}),))), toy.batch())


def test_leaving_one_out_is_the_groups_mean_times_n_over_n_minus_one(toy):
    group = compute_hinge_gradients(toy, 4, GroupMean())
    check_equal(
        compute_hinge_gradients(toy, 4, LeaveOneOut()), {name: 4 / 3 * gradient for name, gradient in group.items()}
    )


def test_each_of_two_samples_is_the_baseline_of_the_other(toy):
    class NeighbourBaseline:
        min_samples = 2
        per_token = False

        def __call__(self, value, score, rollouts):
            return value.view(-1, 2).flip(1).flatten()

    check_equal(compute_hinge_gradients(toy, 2, LeaveOneOut()), compute_hinge_gradients(toy, 2, NeighbourBaseline()))


def test_grpo_is_the_groups_standard_score(toy):
    class StandardScoreBaseline:
        min_samples = 2
        per_token = False

        def __call__(self, value, score, rollouts):
            groups = value.view(-1, 4)
            standard = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
            return value - standard.flatten()

    grpo = compute_hinge_gradients(toy, 4, GroupMean(), scaling=GroupStd())
    check_equal(grpo, compute_hinge_gradients(toy, 4, StandardScoreBaseline()))
    check_equal(grpo, compute_hinge_gradients(toy, 4, LeaveOneOut(), scaling=GroupStd(1e-4 * 4 / 3)))


def test_batch_scaling_gives_scores_of_any_scale_the_same_weight(toy):
    """Advantages have standard deviation 1 over the batch, whatever the standard deviation of their score is."""

    class ScaledHinge:
        differentiable = False

        def __init__(self, listener, factor):
            self.hinge, self.factor = Hinge(listener), factor

        def __call__(self, message, batch):
            return self.factor * self.hinge(message, batch).detach() + 5 * self.factor

    found = []
    for factor in (1.0, 1000.0):
        agents = toy.agents()
        estimator = ScoreFunction(Multinomial(3), CentredBaseline(NoBaseline()), scaling=BatchStd(0.0))
        term = Term("hinge", 1.0, ScaledHinge(agents.listener, factor), estimator)
        found.append(
            compute_gradients(Method(agents.roles, (term,), UpdateSchedule((frozenset({"speaker"}),))), toy.batch())
        )
    check_equal(*found, rtol=1e-3, atol=1e-6)


def test_grpo_with_two_samples_depends_on_their_order_alone(toy):
    advantage = torch.tensor([3.0, 1.0, -0.5, 0.5, 2.0, 2.0])
    rollouts = StepRollouts(None, Batch(torch.arange(3), *[torch.zeros(3, 1)] * 4), 1)
    expected = torch.tensor([1.0, -1.0, -1.0, 1.0, 0.0, 0.0]) / 2**0.5
    centred = advantage - GroupMean()(advantage, None, rollouts)
    torch.testing.assert_close(GroupStd(1e-9)(centred, rollouts), expected)
    torch.testing.assert_close(LeaveOneOut()(advantage, None, rollouts), advantage[[1, 0, 3, 2, 5, 4]])


@pytest.mark.parametrize("channel", [ReinMax(3), GumbelRao(3, k=2)])
def test_channels_with_other_gradients_choose_the_same_tokens(toy, channel):
    """ReinMax samples as straight-through does; Gumbel-Rao draws further numbers after the same first ones."""
    speaker, batch = toy.agents().speaker, toy.batch()
    logits = torch.randn(24, 13)
    plain, other = (c.open(batch, 12, make_rng())(0, logits, torch.arange(24)) for c in (StraightThrough(3), channel))
    assert torch.equal(plain.index, other.index)
    if isinstance(channel, ReinMax):
        assert torch.equal(*(generate(speaker, batch, c, make_rng()).tokens for c in (StraightThrough(3), channel)))


def test_reinmax_and_straight_through_of_a_certain_token_have_no_gradient():
    logits = torch.tensor([[40.0, 0.0, 0.0]], requires_grad=True)
    for channel in (ReinMax(), StraightThrough()):
        soft = channel.relax(logits, None, torch.tensor([0]))
        (gradient,) = torch.autograd.grad(soft[0, 1], logits)
        assert gradient.abs().max() < 1e-6


def test_detached_is_pathwise_for_the_listener_alone(toy):
    agents, batch = toy.agents(), toy.batch()
    channel = Multinomial()
    gradients = []
    for estimator in (Detached(channel), Pathwise(channel), ScoreFunction(channel)):
        rollouts = StepRollouts(agents.speaker, batch, seed=1)
        loss, _ = estimator.surrogate(Hinge(agents.listener), rollouts)
        gradients.append(torch.autograd.grad(loss, list(agents.listener.parameters())))
    for other in gradients[1:]:
        for left, right in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(left, right)


def test_a_term_of_weight_0_has_no_effect(toy):
    batch = toy.batch()
    gradients = compute_gradients(psst_multinomial(toy.agents(), Objective(), 0.0), batch)
    assert not any(name.startswith("listener") for name in gradients)
    check_equal(gradients, compute_gradients(st_multinomial(toy.agents(), Objective(), 0.0), batch))


def test_a_beam_of_width_1_is_greedy(toy):
    agents, batch = toy.agents(), toy.batch()
    greedy = generate(agents.speaker, batch, Greedy(), make_rng())
    beam = generate(agents.speaker, batch, Beam(width=1), make_rng())
    assert torch.equal(greedy.tokens, beam.tokens)


def test_mixer_with_all_words_forced_is_mle(toy):
    batch = toy.batch()
    forced = compute_gradients(mixer(toy.agents(), Objective()), batch)
    assert all(not g.any() for n, g in forced.items() if n.startswith("critic"))
    check_equal(
        {n: g for n, g in forced.items() if n.startswith("speaker")},
        compute_gradients(build_teacher_forcing(toy.agents().roles), batch),
    )


def test_mixer_with_no_word_forced_is_reinforce_with_the_same_baseline(toy, monkeypatch):
    monkeypatch.setattr(StepRollouts, "_make_rng", lambda self, name: make_rng())  # both methods draw the same captions
    method = mixer(toy.agents(), Objective(), forced_tokens=0, critic_hidden=8)
    agents, critic, score = method.agents, method.agents["critic"], CiderScore(toy.cider)
    reference = Method(
        agents,
        (
            Term("naturalness", 1.0, score, ScoreFunction(Multinomial(), CriticBaseline(critic, Multinomial()))),
            Term("critic", 1.0, score, CriticLoss(Multinomial(), critic)),
        ),
        method.schedule,
    )
    left, right = compute_gradients(method, toy.batch()), compute_gradients(reference, toy.batch())
    assert any(g.any() for n, g in left.items() if n.startswith("speaker"))
    check_equal(left, right)


def test_mixer_adds_the_cross_entropy_of_the_forced_words(toy):
    """The loss `likelihood` is the cross-entropy of the forced words, divided by the number of all words."""
    batch = toy.batch()
    method = mixer(toy.agents(), Objective(), forced_tokens=2)
    losses, _ = method.step(batch, seed=3)
    message = teacher_force(toy.agents().speaker, batch)
    message_words = (
        StepRollouts(method.agents["speaker"], batch, 3).get_message(method.terms[0].estimator.channel).mask.sum()
    )
    expected = -(message.log_probs[:, :2] * message.mask[:, :2]).sum() / message_words
    torch.testing.assert_close(losses["likelihood"], expected)
