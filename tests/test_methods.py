"""What should learn moves, what is frozen is bit-identical, and what cannot work is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.channels import Multinomial, StraightThrough
from pipeline.errors import UserError
from pipeline.estimators import Pathwise, ScoreFunction
from pipeline.methods import METHODS
from pipeline.methods.method import Agents, Objective, Term
from pipeline.methods.pretraining import matching, teacher_forcing
from pipeline.methods.psst import frozen_speaker
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import Cider
from pipeline.training.optimisation import Optimisation
from pipeline.types import Role

JOINT = {Role.SPEAKER, Role.LISTENER}
LEARNERS = {
    "mle": {Role.SPEAKER},
    "luo": {Role.SPEAKER},
    **dict.fromkeys(("psst_multinomial", "psst_gumbel", "st_multinomial", "st_gumbel", "reinforce"), JOINT),
}


def after_steps(method, toy, steps: int = 3):
    """Take Adam steps and return, for each agent, its weights before and after."""
    agents = method.agents.present()
    before = {role: {n: p.clone() for n, p in a.state_dict().items()} for role, a in agents.items()}
    adams = {role: torch.optim.Adam(a.parameters(), lr=0.01) for role, a in agents.items()}
    for step in range(steps):
        learners = method.freeze(step)
        losses, _ = method.step(toy.batch(step), seed=1)
        sum(losses.values()).backward()
        for role in learners:
            adams[role].step()
            adams[role].zero_grad()
    return before, {role: a.state_dict() for role, a in agents.items()}


def test_every_method_is_listed_here():
    assert set(LEARNERS) == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_who_learns_moves_and_who_does_not_stays_to_the_bit(name, toy):
    method = METHODS[name](toy.agents(), Objective(), lam=0.3)
    before, after = after_steps(method, toy)
    for role in Role:
        for parameter, old in before[role].items():
            if role in LEARNERS[name]:
                assert not torch.equal(old, after[role][parameter]), f"{role} {parameter} has not moved"
            else:
                assert torch.equal(old, after[role][parameter]), f"{role} {parameter} has moved"


def test_pretraining_needs_one_role_only(toy):
    for method in (
        teacher_forcing(Agents(speaker=toy.agents().speaker)),
        matching(Agents(listener=(listener := toy.agents().listener)), Hinge(listener)),
    ):
        before, after = after_steps(method, toy)
        for role in before:
            assert all(not torch.equal(old, after[role][name]) for name, old in before[role].items())


@pytest.mark.parametrize("name", METHODS)
def test_losses_have_names_and_the_report_waits_for_nobody(name, toy):
    losses, report = METHODS[name](toy.agents(), Objective(), lam=0.3).step(toy.batch(), seed=1)
    assert set(losses) == ({"likelihood"} if name == "mle" else {"discriminability", "naturalness"})
    for value in [*losses.values(), *report.values()]:
        assert value.shape == ()
        assert torch.isfinite(value)
    assert not any(value.requires_grad for value in report.values())


@pytest.mark.parametrize("name", ["psst_multinomial", "luo"])
def test_the_anchor_is_a_third_term(name, toy):
    losses, _ = METHODS[name](toy.agents(), Objective(anchor=3.0), lam=0.25).step(toy.batch(), seed=1)
    likelihood, _ = METHODS["mle"](toy.agents(), Objective()).step(toy.batch(), seed=1)
    torch.testing.assert_close(losses["anchor"], 3.0 * 0.75 * likelihood["likelihood"])


def test_speaker_and_listener_take_turns(toy):
    method = METHODS["reinforce"](toy.agents(), Objective(), lam=0.3)
    for step, terms, moved in [
        (0, {"discriminability", "naturalness"}, Role.SPEAKER),
        (1, {"listening"}, Role.LISTENER),
        (2, {"discriminability", "naturalness"}, Role.SPEAKER),
    ]:
        assert method.freeze(step) == {moved}
        losses, _ = method.step(toy.batch(step), seed=1)
        assert set(losses) == terms
        sum(losses.values()).backward()
        for role, agent in method.agents.present().items():
            reached = any(p.grad is not None and p.grad.abs().sum() > 0 for p in agent.parameters())
            assert reached == (role == moved)
            agent.zero_grad(set_to_none=True)


def test_a_listener_that_nothing_weighs_has_its_turn_and_learns_nothing(toy):
    method = METHODS["reinforce"](toy.agents(), Objective(), lam=0.0)
    assert set(method.step(toy.batch(0), seed=1)[0]) == {"naturalness"}
    assert not method.step(toy.batch(1), seed=1)[0]
    method.agents.listener.zero_grad()
    Optimisation(epochs=1, clip_value=0.1, clip_norm=1.0).clip(method.agents.listener.parameters())


def test_a_frozen_speaker_stays_to_the_bit_while_its_listener_learns(toy):
    agents = toy.agents()
    before, after = after_steps(frozen_speaker(agents, Hinge(agents.listener)), toy)
    assert all(torch.equal(old, after[Role.SPEAKER][name]) for name, old in before[Role.SPEAKER].items())
    assert all(not torch.equal(old, after[Role.LISTENER][name]) for name, old in before[Role.LISTENER].items())


def test_lambda_weighs_the_two_scores(toy):
    def step(lam, reduction="sum"):
        method = METHODS["st_multinomial"](toy.agents(), Objective(reduction=reduction), lam=lam)
        return method.step(toy.batch(), seed=1)[0]

    low, high = step(0.2), step(0.6)
    torch.testing.assert_close(high["discriminability"], 3 * low["discriminability"])
    torch.testing.assert_close(high["naturalness"], low["naturalness"] / 2)
    mean = step(0.2, "mean")
    torch.testing.assert_close(low["discriminability"], 8 * mean["discriminability"])


def test_no_gradient_goes_through_words_to_a_score_that_has_none(toy):
    with pytest.raises(UserError, match="Cider is not differentiable"):
        Term("naturalness", 1.0, Cider(toy.cider), Pathwise(Multinomial()))


def test_words_that_pass_their_gradient_on_have_no_likelihood_to_credit(toy):
    with pytest.raises(UserError, match=r"term naturalness: words of StraightThrough .* use Pathwise"):
        Term("naturalness", 1.0, Cider(toy.cider), ScoreFunction(StraightThrough()))


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_says_the_same(name, toy):
    def losses(seed):
        return METHODS[name](toy.agents(), Objective(), lam=0.3).step(toy.batch(), seed)[0]

    first, again, other = losses(1), losses(1), losses(2)
    assert all(torch.equal(first[k], again[k]) for k in first)
    if name != "mle":
        assert any(not torch.equal(first[k], other[k]) for k in first)


def test_the_readme_s_ten_lines_are_a_method(toy):
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    code = text.split("## Add a method in ten lines")[1].split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    written: dict = {}
    exec(code, written)
    before, after = after_steps(written["both"](toy.agents(), Objective(), lam=0.3), toy)
    for role in Role:
        assert any(not torch.equal(old, after[role][name]) for name, old in before[role].items()), role
