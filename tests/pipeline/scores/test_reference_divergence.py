"""The divergence from the reference speaker, compared with sums over all captions of a small world."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from expected_losses import compute_error_ratio
from torch.nn.functional import kl_div

from pipeline.channels.hard import Multinomial
from pipeline.composition.compose import compose
from pipeline.composition.joint import Objective
from pipeline.composition.kl_penalty import copy_frozen
from pipeline.errors import UserError
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import NoBaseline, Pathwise, ScoreFunction
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import estimate_gradients
from pipeline.methods.likelihood import mle
from pipeline.methods.luo import luo
from pipeline.scores.reference_divergence import ReferenceDivergence, compute_divergence


@pytest.fixture(scope="module")
def world():
    return draw_world(4, 3, 2, seed=3)


@pytest.fixture(scope="module")
def start():
    """Return the reference speaker, whose weights differ from those of the trained speaker."""
    return copy_frozen(draw_world(4, 3, 2, seed=11).speaker)


def test_the_divergence_and_its_gradient_equal_torchs_kl_div():
    logits = torch.randn(300, 7, dtype=torch.float64, requires_grad=True)  # more rows than ROWS
    reference, weights = torch.randn(300, 7, dtype=torch.float64), torch.randn(300, dtype=torch.float64)
    found = compute_divergence(logits, reference)
    expected = kl_div(reference.log_softmax(1), logits.log_softmax(1), log_target=True, reduction="none").sum(1)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((value * weights).sum(), logits)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert compute_divergence(logits, logits.detach()).abs().max() < 1e-15


def test_the_mean_score_of_captions_is_their_divergence(world, start):
    rollouts = StepRollouts(world.speaker, world.batch, seed=1)
    with torch.no_grad():
        log_p, log_q = world.log_probs(), replace(world, speaker=start).log_probs()
        found = -ReferenceDivergence(start)(rollouts.get_message(Multinomial(4000)), world.batch).view(4, -1)
    expected = (log_p.exp() * (log_p - log_q)).sum(1)
    assert expected.min() > 0.1
    error = found.std(1) / 4000**0.5
    assert ((found.mean(1) - expected) / error).abs().max() < 4
    assert (found >= 0).all()  # the divergence is not negative; log p − log q of the drawn token can be


@pytest.mark.parametrize(("baseline", "samples"), [(NoBaseline(), 100), (LeaveOneOut(), 100)])
def test_the_score_gives_the_gradient_of_the_divergence_of_captions(world, start, baseline, samples):
    log_p, log_q = world.log_probs(), replace(world, speaker=start).log_probs().detach()
    truth = -world.gradient((log_p.exp() * (log_p - log_q)).sum(1).mean())
    assert float(truth.norm()) > 0.1
    score = ReferenceDivergence(start)
    found = estimate_gradients(world, ScoreFunction(Multinomial(samples), baseline, "words"), score, rounds=60)
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(found, 1.3 * truth) > 5
    pathwise = estimate_gradients(world, Pathwise(Multinomial(samples), "words"), score, rounds=60)
    assert compute_error_ratio(pathwise, truth) > 10  # pathwise gradients omit the probability of the prefixes


@pytest.mark.parametrize("method", [luo, mle])
def test_a_penalised_method_starts_without_a_penalty_and_has_the_other_terms_unchanged(toy, method):
    objective = Objective(samples=2, baseline="leave_one_out")
    agents, options = toy.agents(), {"lam": 0.3} if method is luo else {}
    plain = compose(method, agents, objective, options)
    penalised = compose(method, agents, replace(objective, kl_weight=0.5), options)
    plain_losses, _ = plain.step(toy.batch(), seed=1)
    losses, report = penalised.step(toy.batch(), seed=1)
    assert {name: losses[name] for name in plain_losses} == plain_losses
    assert set(losses) - set(plain_losses) == {"kl"}
    assert abs(float(report["kl/score"])) < 1e-5
    gradients = torch.autograd.grad(losses["kl"], list(agents.speaker.parameters()), allow_unused=True)
    assert max(float(gradient.abs().max()) for gradient in gradients if gradient is not None) < 1e-5
    with torch.no_grad():
        agents.speaker.logit.bias[1] += 2
    losses, report = penalised.step(toy.batch(), seed=1)
    assert float(report["kl/score"]) < -0.1
    torch.testing.assert_close(losses["kl"].detach(), 0.5 * report["kl/loss"])
    assert "kl" not in penalised.modules()


def test_a_penalty_that_does_not_fit_is_reported_in_one_line(toy):
    with pytest.raises(UserError, match=r"^train\.objective\.kl_weight: expected normalise_gradients false.*\Z"):
        compose(luo, toy.agents(), Objective(kl_weight=1.0, normalise_gradients=True), {"lam": 0.3})


def test_the_frozen_copy_shares_nothing_that_is_trained(toy):
    speaker = toy.agents(dropout=0.5).speaker.train()
    copied = copy_frozen(speaker)
    assert (copied.training, speaker.training) == (False, True)
    assert {id(p) for p in copied.parameters()}.isdisjoint({id(p) for p in speaker.parameters()})
    assert not any(p.requires_grad for p in copied.parameters())
    assert all(p.requires_grad for p in speaker.parameters())


@pytest.mark.skipif(find_spec("peft") is None, reason="LoRA needs the extra: pip install 'saywhich[hub]'")
def test_with_lora_the_copy_has_its_own_adapters_alone(tmp_path):
    from tiny_captioners import write_captioner

    from pipeline.models.hub_captioner import HubDecoder

    write_captioner("blip", tmp_path)
    lora = {"rank": 2, "alpha": 4, "targets": None}
    speaker = HubDecoder.from_hub(str(tmp_path), range(5, 20), 6, 0.0, lora)
    copied = dict(copy_frozen(speaker).named_parameters())
    own = {name for name, weight in speaker.named_parameters() if copied[name] is not weight}
    assert own == {name for name in copied if "lora_" in name}
    assert {name for name, weight in speaker.named_parameters() if weight.requires_grad} == own
    assert not any(weight.requires_grad for name, weight in copied.items() if name in own)
