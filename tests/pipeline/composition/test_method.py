"""Turns, terms, and what a method freezes, reports and leaves out."""

from __future__ import annotations

import pytest
import torch

from pipeline.channels.hard import Multinomial
from pipeline.channels.teacher_forcing import Forced
from pipeline.composition.joint import Objective
from pipeline.composition.method import ALTERNATE, JOINT, LISTENER_ONLY, SPEAKER_ONLY, Method, Term, UpdateSchedule
from pipeline.composition.relax_controls import with_relax
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.methods.luo import luo
from pipeline.methods.psst import psst_multinomial, reinforce
from pipeline.methods.sle import sll_me, sll_sle
from pipeline.scores.naturalness import CiderScore, HumanCaption

A, B, C = (frozenset({role}) for role in "abc")


def test_turns_begin_after_the_steps_that_one_role_has_alone():
    turns = UpdateSchedule((A, B | C), warmup=C, warmup_steps=3)
    assert [turns.learners(step) for step in range(7)] == [C, C, C, A, B | C, A, B | C]
    assert turns.all_roles == A | B | C
    assert [UpdateSchedule((A, B)).learners(step) for step in range(4)] == [A, B, A, B]


def test_early_roles_are_through_before_the_others_begin():
    turns = UpdateSchedule((A | B, B, C), early=B)
    assert [turns.rounds(step) for step in range(3)] == [(B, A), (B,), (C,)]
    assert UpdateSchedule((A | B,)).rounds(0) == (A | B,)


def test_the_turns_that_methods_take():
    speaker, listener = frozenset({"speaker"}), frozenset({"listener"})
    assert [t.order for t in (SPEAKER_ONLY, LISTENER_ONLY, JOINT, ALTERNATE)] == [
        (speaker,), (listener,), (speaker | listener,), (speaker, listener)
    ]  # fmt: skip


def counting(toy, **teaches) -> Method:
    """A term a role, of weights 1, 2, …, and one that teaches everybody."""
    agents = toy.agents()
    terms = [
        Term(name, float(n), HumanCaption(), ScoreFunction(Forced()), roles)
        for n, (name, roles) in enumerate(teaches.items(), start=1)
    ]
    return Method(agents.roles, tuple(terms), ALTERNATE)


def test_a_term_is_in_the_steps_of_those_whom_it_teaches_and_weighted(toy):
    speaker, listener = frozenset({"speaker"}), frozenset({"listener"})
    method = counting(toy, said=speaker, heard=listener, both=speaker | listener, all=None)
    assert method.weights == {"said": 1, "heard": 2, "both": 3, "all": 4}
    plain = None
    for step, names in ((0, ["said", "both", "all"]), (1, ["heard", "both", "all"])):
        losses, report = method.step(toy.batch(step), seed=1)
        assert list(losses) == names
        plain = report[f"{names[0]}/loss"]
        for name in names:
            torch.testing.assert_close(losses[name].detach(), method.weights[name] * plain)
            torch.testing.assert_close(report[f"{name}/loss"], plain)  # as it is, without the weight
    assert {name.partition("/")[2] for name in report} == {"loss", "score", "words", "advantage", "log_prob"}


def test_only_those_whose_turn_it_is_have_a_gradient(toy):
    method = reinforce(toy.agents(), Objective(), 0.3)
    for step in range(4):
        learners = method.freeze(step)
        assert learners == method.schedule.learners(step)
        for role, agent in method.agents.items():
            assert {p.requires_grad for p in agent.parameters()} == {role in learners}


def test_a_control_is_put_beside_every_term_that_goes_by_drawn_captions(toy):
    objective = Objective(samples=3, baseline="leave_one_out")
    plain = luo(toy.agents(), objective, 0.3)
    method = with_relax(plain)
    assert [term.name for term in method.terms] == [term.name for term in plain.terms]
    for before, after in zip(plain.terms, method.terms, strict=True):
        assert isinstance(after.estimator, RelaxEstimator)
        assert after.estimator.inner == before.estimator == ScoreFunction(Multinomial(3), LeaveOneOut())
        assert (after.weight, after.score, after.updates) == (before.weight, before.score, before.updates | {"critic"})
        control = method.agents["critic"][after.name]
        assert after.estimator.control is control
        speaker = method.speaker
        assert (control.from_state.in_features, control.from_word.in_features) == (
            speaker.hidden,
            speaker.vocabulary + 1,
        )
    assert method.schedule.order == (frozenset({"speaker", "critic"}),)


def test_controls_learn_in_the_speaker_s_turns_alone(toy):
    method = with_relax(reinforce(toy.agents(), Objective(), 0.3))
    assert method.schedule.order == (frozenset({"speaker", "critic"}), frozenset({"listener"}))
    through = with_relax(psst_multinomial(toy.agents(), Objective(cross_entropy_weight=0.5), 0.3))
    kinds = {term.name: isinstance(term.estimator, RelaxEstimator) for term in through.terms}
    assert kinds == {"discriminability": False, "naturalness": True, "cross_entropy": False}
    assert list(through.agents["critic"]) == ["naturalness"]


@pytest.mark.parametrize("options", [{"advantage_scaling": "group", "samples": 2}, {"advantage_scaling": "batch"}])
def test_scaled_terms_have_no_control(toy, options):
    plain = luo(toy.agents(), Objective(**options), 0.3)
    assert with_relax(plain) is plain


def test_the_entropy_has_no_control_and_a_set_s_distance_has(toy):
    with_entropy = with_relax(sll_me(toy.agents(), Objective(), samples=2))
    assert [isinstance(term.estimator, RelaxEstimator) for term in with_entropy.terms] == [True, False]
    sets = with_relax(sll_sle(toy.agents(), Objective(), samples=3))
    assert [isinstance(term.estimator, RelaxEstimator) for term in sets.terms] == [True, True]


def test_a_state_that_a_score_counts_is_kept_with_the_agents(toy):
    class Counting(torch.nn.Module):
        differentiable = False

    method = counting(toy, said=None)
    score = Counting()
    from dataclasses import replace

    counted = replace(method, terms=(Term("said", 1.0, score, ScoreFunction(Forced())),))
    assert counted.modules() == {**method.agents, "score.said": score}
    plain = Term("said", 1.0, CiderScore(toy.cider), ScoreFunction(Forced()))
    assert replace(method, terms=(plain,)).modules() == dict(method.agents)
