"""Update schedules and terms of a method: frozen agents, reports and control variates."""

from dataclasses import replace

import pytest
import torch
from conftest import make_reward_models

from pipeline.channels.hard import Multinomial
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.compose import compose
from pipeline.composition.joint import Objective
from pipeline.composition.method import ALTERNATE, JOINT, LISTENER_ONLY, SPEAKER_ONLY, Method, Term, UpdateSchedule
from pipeline.composition.relax_controls import add_relax
from pipeline.errors import UserError
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.methods.likelihood import mle
from pipeline.methods.luo import luo
from pipeline.methods.psst import psst_multinomial, reinforce
from pipeline.methods.sle import sll_me, sll_sle
from pipeline.methods.wtf_rl import wtf
from pipeline.scores.naturalness import CiderScore, HumanCaption

A, B, C = (frozenset({role}) for role in "abc")


def test_alternation_begins_after_the_warm_up_steps():
    schedule = UpdateSchedule((A, B | C), warmup=C, warmup_steps=3)
    assert [schedule.roles(step) for step in range(7)] == [C, C, C, A, B | C, A, B | C]
    assert schedule.all_roles == A | B | C
    assert [UpdateSchedule((A, B)).roles(step) for step in range(4)] == [A, B, A, B]


def test_early_roles_are_updated_before_the_others():
    schedule = UpdateSchedule((A | B, B, C), early=B)
    assert [schedule.list_updates(step) for step in range(3)] == [(B, A), (B,), (C,)]
    assert UpdateSchedule((A | B,)).list_updates(0) == (A | B,)


def test_the_update_schedules_of_methods():
    speaker, listener = frozenset({"speaker"}), frozenset({"listener"})
    assert [t.order for t in (SPEAKER_ONLY, LISTENER_ONLY, JOINT, ALTERNATE)] == [
        (speaker,), (listener,), (speaker | listener,), (speaker, listener)
    ]  # fmt: skip


def make_weighted_method(toy, **roles_by_term) -> Method:
    """Return a method with one term per keyword, whose value gives the term's roles; the weights are 1, 2, …"""
    agents = toy.agents()
    terms = [
        Term(name, float(n), HumanCaption(), ScoreFunction(TeacherForcing()), roles)
        for n, (name, roles) in enumerate(roles_by_term.items(), start=1)
    ]
    return Method(agents.roles, tuple(terms), ALTERNATE)


def test_a_term_is_in_the_steps_of_its_roles_with_its_weight(toy):
    speaker, listener = frozenset({"speaker"}), frozenset({"listener"})
    method = make_weighted_method(toy, naturalness=speaker, matching=listener, both=speaker | listener, all=None)
    assert method.weights == {"naturalness": 1, "matching": 2, "both": 3, "all": 4}
    for step, names in ((0, ["naturalness", "both", "all"]), (1, ["matching", "both", "all"])):
        losses, report = method.step(toy.batch(step), seed=1)
        assert list(losses) == names
        plain = report[f"{names[0]}/loss"]
        for name in names:
            torch.testing.assert_close(losses[name].detach(), method.weights[name] * plain)
            torch.testing.assert_close(report[f"{name}/loss"], plain)  # without the weight
    assert {name.partition("/")[2] for name in report} == {"loss", "score", "words", "advantage", "log_prob"}


def test_only_scheduled_roles_require_a_gradient(toy):
    method = reinforce(toy.agents(), Objective(), 0.3)
    for step in range(4):
        roles = method.freeze(step)
        assert roles == method.schedule.roles(step)
        for role, agent in method.agents.items():
            assert {p.requires_grad for p in agent.parameters()} == {role in roles}


def test_every_score_function_term_on_sampled_captions_gets_a_control_variate(toy):
    objective = Objective(samples=3, baseline="leave_one_out")
    plain = luo(toy.agents(), objective, 0.3)
    method = add_relax(plain)
    assert [term.name for term in method.terms] == [term.name for term in plain.terms]
    for plain_term, term in zip(plain.terms, method.terms, strict=True):
        assert isinstance(term.estimator, RelaxEstimator)
        assert term.estimator.inner == plain_term.estimator == ScoreFunction(Multinomial(3), LeaveOneOut())
        assert (term.weight, term.score, term.updates) == (
            plain_term.weight,
            plain_term.score,
            plain_term.updates | {"critic"},
        )
        control = method.agents["critic"][term.name]
        assert term.estimator.control is control
        speaker = method.speaker
        assert (control.from_state.in_features, control.from_word.in_features) == (
            speaker.hidden,
            speaker.vocabulary + 1,
        )
    assert method.schedule.order == (frozenset({"speaker", "critic"}),)


def test_control_variates_are_updated_only_with_the_speaker(toy):
    method = add_relax(reinforce(toy.agents(), Objective(), 0.3))
    assert method.schedule.order == (frozenset({"speaker", "critic"}), frozenset({"listener"}))
    pathwise = add_relax(psst_multinomial(toy.agents(), Objective(cross_entropy_weight=0.5), 0.3))
    kinds = {term.name: isinstance(term.estimator, RelaxEstimator) for term in pathwise.terms}
    assert kinds == {"discriminability": False, "naturalness": True, "cross_entropy": False}
    assert list(pathwise.agents["critic"]) == ["naturalness"]


def test_a_composed_method_has_a_control_variate_only_where_asked(toy):
    for variate, roles in (("none", set()), ("relax", {"critic"})):
        method = compose(luo, toy.agents(), Objective(control_variate=variate), {"lam": 0.3})
        assert set(method.agents) - {"speaker", "listener"} == roles


@pytest.mark.parametrize("options", [{"advantage_scaling": "group", "samples": 2}, {"advantage_scaling": "batch"}])
def test_scaled_terms_have_no_control_variate(toy, options):
    plain = luo(toy.agents(), Objective(**options), 0.3)
    assert add_relax(plain) is plain


def test_a_sets_distance_has_a_control_variate_and_the_entropy_has_none(toy):
    with_entropy = add_relax(sll_me(toy.agents(), Objective(), samples=2))
    assert [isinstance(term.estimator, RelaxEstimator) for term in with_entropy.terms] == [True, False]
    sets = add_relax(sll_sle(toy.agents(), Objective(), samples=3))
    assert [isinstance(term.estimator, RelaxEstimator) for term in sets.terms] == [True, True]


def test_a_score_that_is_a_module_is_among_the_methods_modules(toy):
    class ModuleScore(torch.nn.Module):
        differentiable = False

    method = make_weighted_method(toy, naturalness=None)
    score = ModuleScore()
    with_module = replace(method, terms=(Term("naturalness", 1.0, score, ScoreFunction(TeacherForcing())),))
    assert with_module.modules() == {**method.agents, "score.naturalness": score}
    plain = Term("naturalness", 1.0, CiderScore(toy.cider), ScoreFunction(TeacherForcing()))
    assert replace(method, terms=(plain,)).modules() == dict(method.agents)


@pytest.mark.parametrize("scaling", ["group", "batch"])
def test_a_control_variate_is_refused_where_advantages_are_scaled(toy, scaling):
    """A scaled term has no control variate, so the run would be another method under the name RELAX."""
    objective = Objective(samples=2, baseline="group", control_variate="relax", advantage_scaling=scaling)
    with pytest.raises(UserError, match=f"control_variate = relax: expected advantage_scaling none, got {scaling}"):
        compose(luo, toy.agents(), objective, {"lam": 0.3})


def test_a_kl_penalty_has_no_control_variate_and_the_other_terms_have(toy):
    objective = Objective(samples=2, baseline="running_mean", control_variate="relax", kl_weight=0.5)
    method = compose(luo, toy.agents(), objective, {"lam": 0.3})
    estimators = {term.name: type(term.estimator) for term in method.terms}
    assert estimators == {"discriminability": RelaxEstimator, "naturalness": RelaxEstimator, "kl": ScoreFunction}
    assert method.terms[-1].estimator == ScoreFunction(Multinomial(2), LeaveOneOut(), "words")
    assert list(method.agents["critic"]) == ["discriminability", "naturalness"]
    means = {"baseline.discriminability", "baseline.naturalness"}  # baselines of the estimators that RELAX wraps
    assert set(method.modules()) == {"speaker", "listener", "critic", *means}


def test_compose_passes_normalise_gradients_to_the_method(toy):
    for normalise in (False, True):
        objective = Objective(normalise_gradients=normalise)
        for composition, arguments, rewards in (
            (luo, {"lam": 0.3}, None),
            (mle, {}, None),
            (wtf, {}, make_reward_models()),
        ):
            method = compose(composition, toy.agents(), objective, arguments, rewards)
            assert method.normalise_gradients is normalise
