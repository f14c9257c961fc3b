"""Methods of visual dialog: trained agents, the generator's gradients, and the absence of errors of published code."""

from dataclasses import fields, replace

import pytest
import torch
from every_method import IN_DIALOGS
from expected_losses import compute_error_ratio
from small_dialogs import make_batch, make_discriminator, make_generator

from pipeline.channels.hard import Multinomial
from pipeline.channels.straight_through import Gumbel, StraightThrough
from pipeline.composition.objective import Objective
from pipeline.composition.pretraining import build_listener_adaptation, build_listener_matching, build_teacher_forcing
from pipeline.dialog.composition.answer_preference import NPairScore, PairwiseScore
from pipeline.dialog.composition.dialog_agents import DialogAgents
from pipeline.dialog.data.dialog_questions import DialogBatch, DialogQuestions
from pipeline.dialog.evaluation.answer_ranking import (
    RankingValidation,
    compute_candidate_likelihoods,
    compute_discriminator_scores,
)
from pipeline.dialog.evaluation.candidate_ranking import compute_candidate_ranks
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.dialog_encoders import Hciae
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.surrogate import Pathwise, ScoreFunction
from pipeline.gradients.enumerated import Enumeration
from pipeline.gradients.gradient_world import GradientWorld
from pipeline.gradients.measure import estimate_accuracy, estimate_gradients
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation

MEAN = Objective(reduction="mean")
LISTENER_METHODS = {"gan1", "gan2"}


def make_agents(dropout: float = 0.0) -> DialogAgents:
    return DialogAgents(make_generator(dropout=dropout), make_discriminator(dropout=dropout))


def run_step(method, batch: DialogBatch) -> dict[str, torch.Tensor]:
    roles = method.freeze(batch.step)
    for role, agent in method.agents.items():
        agent.train(role in roles)
        agent.zero_grad()
    losses, _ = method.step(batch, 1)
    torch.stack(list(losses.values())).sum().backward()
    return losses


def has_gradient(agent: torch.nn.Module) -> bool:
    return any(p.grad is not None and bool(p.grad.any()) for p in agent.parameters())


def has_all_gradients(agent: torch.nn.Module) -> bool:
    return all(p.grad is not None and bool(p.grad.any()) for p in agent.parameters())


@pytest.mark.parametrize("name", IN_DIALOGS)
def test_all_parameters_of_the_scheduled_roles_are_updated(name):
    agents = make_agents()
    method = IN_DIALOGS[name](agents, MEAN)
    run_step(method, make_batch(step=0))
    assert has_all_gradients(agents.speaker)
    assert not has_gradient(agents.listener)
    run_step(method, make_batch(step=1))
    roles = (agents.listener, agents.speaker) if name in LISTENER_METHODS else (agents.speaker, agents.listener)
    assert has_all_gradients(roles[0])
    assert not has_gradient(roles[1])


class RepeatedBatches:
    """Batches that are the same in every epoch, except for their steps."""

    def __init__(self, size: int = 4) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def epoch(self, epoch: int, start: int = 0):
        for number in range(start, self.size):
            yield make_batch(seed=number, step=epoch * self.size + number)


def run_training(method, epochs: int = 2, folder=None, rate: float = 0.01) -> Training:
    settings = Optimisation(epochs=epochs, learning_rate=rate, validate_every=0)
    training = Training(method, RepeatedBatches(), settings, 1, torch.device("cpu"))
    training.run(None if folder is None else Checkpoints(folder), 0.0)
    return training


@pytest.mark.parametrize("name", sorted(set(IN_DIALOGS) - LISTENER_METHODS))
def test_the_frozen_discriminator_stays_bit_identical(name):
    agents = make_agents(dropout=0.4)
    before = {n: t.clone() for n, t in agents.listener.state_dict().items()}
    run_training(IN_DIALOGS[name](agents, MEAN), epochs=1)
    assert all(torch.equal(t, before[n]) for n, t in agents.listener.state_dict().items())


def test_the_frozen_discriminator_has_no_dropout():
    agents = make_agents(dropout=0.4)
    method, batch = IN_DIALOGS["g_dis"](agents, MEAN, alpha=0.0), make_batch()
    agents.speaker.dropout, agents.speaker.encoder.dropout = 0.0, 0.0
    first = [run_step(method, batch)["discriminability"].item() for _ in range(2)]
    assert first[0] == first[1]
    agents.listener.train()
    run_training(method, epochs=1)
    assert not agents.listener.training


@pytest.mark.parametrize("name", ["g_dis", "gan2"])
def test_a_run_that_is_resumed_from_a_checkpoint_has_the_same_bits(name, tmp_path):
    whole, resumed = (IN_DIALOGS[name](make_agents(dropout=0.3), MEAN) for _ in range(2))
    run_training(whole, epochs=3)
    run_training(resumed, epochs=2, folder=tmp_path)
    resumed = IN_DIALOGS[name](make_agents(dropout=0.3), MEAN)
    with torch.no_grad():  # from these weights a training without the checkpoint would have another result
        for agent in resumed.agents.values():
            torch._foreach_zero_(list(agent.parameters()))
    run_training(resumed, epochs=3, folder=tmp_path)
    for role, agent in whole.agents.items():
        other = resumed.agents[role].state_dict()
        assert all(torch.equal(t, other[n]) for n, t in agent.state_dict().items())


@pytest.mark.slow
def test_pretraining_learns_to_rank_and_g_dis_raises_the_discriminators_preference():
    agents = make_agents()
    run_training(build_listener_matching(agents.listener, NPairScore(agents.listener)), epochs=25)
    run_training(build_teacher_forcing({"speaker": agents.speaker}), epochs=25)
    batch = make_batch()
    by_chance = 3.5
    assert (
        compute_candidate_ranks(compute_discriminator_scores(agents.listener, batch), batch.questions.truth)
        .double()
        .mean()
        < 2
    )
    assert (
        compute_candidate_ranks(compute_candidate_likelihoods(agents.speaker, batch), batch.questions.truth)
        .double()
        .mean()
        < by_chance
    )

    def measure_preference() -> float:
        from pipeline.models.unroll import generate

        with torch.no_grad():
            generated = generate(agents.speaker.eval(), batch, Multinomial(50), torch.Generator().manual_seed(0))
            return PairwiseScore(agents.listener)(generated, batch).mean().item()

    before = measure_preference()
    run_training(IN_DIALOGS["g_dis"](agents, MEAN, alpha=0.0), epochs=15)
    assert measure_preference() > before + 0.01


def test_the_eos_of_an_answer_has_a_gradient_where_it_is_encoded():
    batch = make_batch()
    agents = DialogAgents(make_generator(), make_discriminator(encode_eos=True))
    with torch.no_grad():
        agents.speaker.logit.bias[0] = 9.0  # answers end at once
    constant, soft = (Objective(reduction="mean", eos_gradient=eos_gradient) for eos_gradient in ("constant", "soft"))
    run_step(IN_DIALOGS["g_dis"](agents, constant, alpha=0.0), batch)
    assert not has_gradient(agents.speaker)
    run_step(IN_DIALOGS["g_dis"](agents, soft, alpha=0.0), batch)
    assert has_gradient(agents.speaker)


def test_ranks_cover_every_round():
    """The human answer has the highest score in round 6 alone; elsewhere all candidates tie, and it ranks last."""
    batch, model = make_batch(dialogs=2, rounds=10), make_discriminator().eval()
    truth = batch.questions.options.gather(1, batch.questions.truth.unsqueeze(1))[:, 0]
    known = torch.arange(20) % 10 == 5
    model.encode_answers = lambda answers: torch.eye(len(answers))
    model.encode_question = lambda _: torch.eye(len(batch.questions.answers))[truth] * known.unsqueeze(1)
    found = RankingValidation(None, model, lambda: [batch], torch.device("cpu"))()
    assert found["R@1"] == pytest.approx(10.0)
    assert found["MRR"] == pytest.approx((2 * 1 + 18 / 6) / 20)


@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_likelihoods_of_candidates_equal_those_of_each_alone(decoder):
    from pipeline.models.unroll import teacher_force

    batch, speaker = make_batch(), make_generator(decoder=decoder).eval()
    found = compute_candidate_likelihoods(speaker, batch)
    for option in range(batch.questions.options.shape[1]):
        candidates = replace(batch, captions=batch.questions.answers[batch.questions.options[:, option]])
        message = teacher_force(speaker, candidates)
        torch.testing.assert_close(found[:, option], message.log_probs.sum(1))


def test_options_that_are_alike_tie_to_the_bit():
    batch = make_batch()
    options = batch.questions.options.clone()
    options[:, 0] = options[:, 3]
    batch = replace(batch, questions=replace(batch.questions, options=options))
    for scores in (
        compute_candidate_likelihoods(make_generator(), batch),
        compute_discriminator_scores(make_discriminator(), batch),
    ):
        assert torch.equal(scores[:, 0], scores[:, 3])


@pytest.fixture(scope="module")
def world() -> GradientWorld:
    """Return one dialog of two rounds; with a vocabulary of two, seven answers have at most two words."""
    torch.manual_seed(4)
    speaker = DialogDecoder(Hciae(3, 3, 4, 0.0), DialogLstm(2, 4, 3, 0.0, 2)).double()
    listener = Discriminator(Hciae(3, 3, 4, 0.0), 2, "attention", 0.0).double()
    with torch.no_grad():
        speaker.logit.weight *= 3
        listener.outer.weight *= 3
        listener.encoder.fusion.weight *= 3
    regions = torch.randn(1, 2, 3, dtype=torch.float64).repeat_interleave(2, 0)
    questions, history = torch.tensor([[1, 2], [2, 0]]), torch.tensor([[[1, 1, 0], [2, 1, 0]]])
    answers = torch.tensor([[1, 0, 0], [2, 1, 0]])
    dialog_questions = DialogQuestions(
        questions, history, torch.tensor([[0, 1], [0, 1]]), torch.tensor([0, 1]), answers
    )
    mask = torch.ones(2, 2, dtype=torch.bool)
    batch = DialogBatch(torch.arange(2), regions.mean(1), regions, mask, answers, questions=dialog_questions)
    return GradientWorld(speaker.eval(), listener.eval().requires_grad_(False), batch)


def test_the_score_function_gradient_of_the_preference_is_unbiased(world):
    preference = PairwiseScore(world.listener)
    truth = world.exact_gradient(preference)
    found = estimate_gradients(world, ScoreFunction(Multinomial(50), LeaveOneOut()), preference, rounds=80)
    assert compute_error_ratio(found, truth) < 4
    assert compute_error_ratio(found, 1.5 * truth) > 12


def test_the_bias_of_the_gradient_of_g_dis(world):
    preference = PairwiseScore(world.listener)
    truth = world.exact_gradient(preference)
    gumbel = estimate_accuracy(
        estimate_gradients(world, Pathwise(Gumbel(100, temperature=0.5)), preference, rounds=40), truth
    )
    assert gumbel.bias > 0.1 + 2 * gumbel.bias_error
    assert gumbel.cosine > 0.2  # still an ascent direction
    mean, _ = Enumeration(world, preference).moments(Pathwise(StraightThrough()))
    sampled = estimate_gradients(world, Pathwise(StraightThrough(100)), preference, rounds=40)
    expected = sampled.var(0).sum() / len(sampled)
    assert (sampled.mean(0) - mean).square().sum() < 8 * expected
    assert (truth - mean).square().sum() > 100 * expected


def test_adaptation_updates_the_discriminator_and_not_the_speaker():
    agents = make_agents()
    method = build_listener_adaptation(agents.speaker, agents.listener, PairwiseScore(agents.listener, reverse=True))
    run_step(method, make_batch())
    assert has_gradient(agents.listener)
    assert not has_gradient(agents.speaker)


def test_all_tensors_of_a_dialog_batch_are_transferred():
    batch = make_batch()
    transferred = batch.to("meta")
    assert transferred.questions is not None
    values = [getattr(part, f.name) for part in (transferred, transferred.questions) for f in fields(part)]
    devices = [value.device.type for value in values if isinstance(value, torch.Tensor)]
    assert devices == ["meta"] * 10  # five tensors of each part
