"""Training changes the scheduled roles, leaves frozen parameters bit-identical and refuses impossible settings."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import make_reward_models
from every_method import METHODS

from pipeline.channels.hard import Multinomial
from pipeline.channels.straight_through import StraightThrough
from pipeline.composition.joint import Agents, Objective
from pipeline.composition.method import Method, Term
from pipeline.composition.pretraining import build_listener_adaptation, build_listener_matching, build_teacher_forcing
from pipeline.composition.relax_controls import add_relax
from pipeline.errors import UserError
from pipeline.estimators.surrogate import Pathwise, ScoreFunction
from pipeline.models.guided import GuidedDecoder
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import CiderScore
from pipeline.training.optimisation import Optimisation

JOINT = {"speaker", "listener"}
WITH_DISCRIMINATOR = {"speaker", "discriminator"}
GENERATED_TERMS = {"discriminator", "discriminability", "naturalness"}
HUMAN_TERMS = {"discriminator", "discriminability_of_human", "naturalness_of_human"}
UPDATED_ROLES = {
    "mle": {"speaker"},
    "luo": {"speaker"},
    "sll": {"speaker"},
    "sll_me": {"speaker"},
    "sll_sle": {"speaker"},
    "guidance": {"speaker"},
    "discritune": {"speaker"},
    "rl_sampled": {"speaker"},
    "pg_spider": {"speaker", "critic"},
    "mixer": {"speaker", "critic"},
    **dict.fromkeys(("psst_multinomial", "psst_gumbel", "st_multinomial", "st_gumbel", "reinforce"), JOINT),
    **dict.fromkeys(("wtf", "rl", "rl_unidirectional", "wtf_rl", "scst_discriminator"), WITH_DISCRIMINATOR),
    "scst_grammar": {"speaker"},
    "psst_wtf": {*JOINT, "discriminator"},
    **dict.fromkeys(("psst_reinmax", "psst_gumbel_rao", "st_reinmax", "st_gumbel_rao"), JOINT),
}
OPTIONS: dict[str, dict] = {
    "pg_spider": {"reward": {"CIDEr": 1, "ROUGE-L": 2}, "critic_first": 0},
    "mixer": {"forced_tokens": 2},
}
TERMS = {
    "mle": {"likelihood"},
    "guidance": {"likelihood"},
    "discritune": {"discriminability"},
    "sll": {"naturalness"},
    "sll_me": {"naturalness", "entropy"},
    "sll_sle": {"naturalness", "exploration"},
    "pg_spider": {"discriminability", "naturalness", "critic"},
    "mixer": {"discriminability", "naturalness", "critic", "likelihood"},
    "wtf": HUMAN_TERMS,
    "wtf_rl": GENERATED_TERMS | HUMAN_TERMS,
    **dict.fromkeys(("rl", "rl_unidirectional", "scst_discriminator"), GENERATED_TERMS),
    "psst_wtf": {"discriminator", "discriminability", "human", "naturalness"},
}
DETERMINISTIC = {"mle", "guidance", "wtf", "rl", "rl_unidirectional", "wtf_rl", "scst_discriminator", "scst_grammar"}


def build_method(name: str, agents: Agents, objective: Objective | None = None) -> Method:
    """Build the method, with λ = 0.3 if it takes λ."""
    parameters = inspect.signature(METHODS[name]).parameters
    options: dict = {"lam": 0.3} if "lam" in parameters else {}
    options |= {"rewards": make_reward_models()} if "rewards" in parameters else {}
    return METHODS[name](agents, objective or Objective(), **options, **OPTIONS.get(name, {}))


def take_steps(method, toy, steps: int = 3):
    """Take Adam steps and return, for each agent, its weights before and after."""
    agents = method.agents
    before = {role: {n: p.clone() for n, p in a.state_dict().items()} for role, a in agents.items()}
    optimizers = {role: torch.optim.Adam(a.parameters(), lr=0.01) for role, a in agents.items()}
    for step in range(steps):
        roles = method.freeze(step)
        batch = toy.batch(step)
        batch.region_mask[1] &= not method.image_dropout
        losses, _ = method.step(batch, seed=1)
        sum(losses.values()).backward()
        for role in roles:
            optimizers[role].step()
            optimizers[role].zero_grad()
    return before, {role: a.state_dict() for role, a in agents.items()}


def test_every_method_is_listed_here():
    assert set(UPDATED_ROLES) == set(METHODS)


@pytest.mark.parametrize("recurrent", ["att2in", pytest.param("lstm", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", METHODS)
def test_trained_agents_change_and_frozen_ones_stay_bit_identical(name, recurrent, toy):
    before, after = take_steps(build_method(name, toy.agents(decoder=recurrent)), toy)
    for role in before:
        for parameter, old in before[role].items():
            if role in UPDATED_ROLES[name]:
                assert not torch.equal(old, after[role][parameter]), f"{role} {parameter} has not changed"
            else:
                assert torch.equal(old, after[role][parameter]), f"{role} {parameter} has changed"


def test_pretraining_needs_one_role_only(toy):
    for method in (
        build_teacher_forcing({"speaker": toy.agents().speaker}),
        build_listener_matching(listener := toy.agents().listener, Hinge(listener)),
    ):
        before, after = take_steps(method, toy)
        for role in before:
            assert all(not torch.equal(old, after[role][name]) for name, old in before[role].items())


@pytest.mark.parametrize("name", METHODS)
def test_losses_have_names_and_reports_are_tensors_without_gradient(name, toy):
    losses, report = build_method(name, toy.agents()).step(toy.batch(), seed=1)
    assert set(losses) == TERMS.get(name, {"discriminability", "naturalness"})
    for value in [*losses.values(), *report.values()]:
        assert value.shape == ()
        assert torch.isfinite(value)
    assert not any(value.requires_grad for value in report.values())


@pytest.mark.parametrize("name", ["psst_multinomial", "luo"])
def test_cross_entropy_weight_adds_a_third_term(name, toy):
    losses, _ = METHODS[name](toy.agents(), Objective(cross_entropy_weight=3.0), lam=0.25).step(toy.batch(), seed=1)
    likelihood, _ = METHODS["mle"](toy.agents(), Objective()).step(toy.batch(), seed=1)
    torch.testing.assert_close(losses["cross_entropy"], 3.0 * 0.75 * likelihood["likelihood"])


def test_reinforce_updates_speaker_and_listener_alternately(toy):
    method = METHODS["reinforce"](toy.agents(), Objective(), lam=0.3)
    for step, terms, updated_role in [
        (0, {"discriminability", "naturalness"}, "speaker"),
        (1, {"matching"}, "listener"),
        (2, {"discriminability", "naturalness"}, "speaker"),
    ]:
        assert method.freeze(step) == {updated_role}
        losses, _ = method.step(toy.batch(step), seed=1)
        assert set(losses) == terms
        sum(losses.values()).backward()
        for role, agent in method.agents.items():
            has_gradient = any(p.grad is not None and p.grad.abs().sum() > 0 for p in agent.parameters())
            assert has_gradient == (role == updated_role)
            agent.zero_grad(set_to_none=True)


def test_a_listener_without_a_weighted_term_is_scheduled_without_a_loss(toy):
    method = METHODS["reinforce"](toy.agents(), Objective(), lam=0.0)
    assert set(method.step(toy.batch(0), seed=1)[0]) == {"naturalness"}
    assert method.freeze(1) == {"listener"}
    assert not method.step(toy.batch(1), seed=1)[0]
    method.agents["listener"].zero_grad()
    Optimisation(epochs=1, clip_value=0.1, clip_norm=1.0).clip(method.agents["listener"].parameters())


@pytest.mark.parametrize("name", ["psst_multinomial", "luo", "mle"])
def test_joint_training_is_the_same_with_a_null_image_which_it_leaves_unchanged(name, toy):
    found = {}
    for with_null in (False, True):
        agents = toy.agents()
        if with_null:
            agents.speaker.add_null_image()
            with torch.no_grad():
                agents.speaker.null += torch.arange(8.0)
        _, found[with_null] = take_steps(METHODS[name](agents, Objective(), lam=0.3), toy)
    assert torch.equal(found[True]["speaker"].pop("null"), torch.arange(8.0))
    for role, weights in found[False].items():
        assert all(torch.equal(value, found[True][role][n]) for n, value in weights.items())


def test_guidance_needs_a_null_image_and_guides_the_final_speaker(toy):
    method = METHODS["luo"](toy.agents(), Objective(), lam=0.3)
    assert method.final_agents() == method.agents
    with pytest.raises(
        UserError, match="needs the null image of the pretrained speaker, which has none; set image_dropout"
    ):
        replace(method, gamma=2.0)
    method = replace(METHODS["guidance"](toy.agents(), Objective()), gamma=2.0)
    guided = method.final_agents()["speaker"]
    assert isinstance(guided, GuidedDecoder)
    assert guided.gamma == 2
    assert guided.word.weight.data_ptr() == method.agents["speaker"].word.weight.data_ptr()
    assert method.final_agents()["listener"] is method.agents["listener"]


def test_a_frozen_speaker_stays_bit_identical_during_adaptation(toy):
    agents = toy.agents()
    before, after = take_steps(build_listener_adaptation(agents.speaker, agents.listener, Hinge(agents.listener)), toy)
    assert all(torch.equal(old, after["speaker"][name]) for name, old in before["speaker"].items())
    assert all(not torch.equal(old, after["listener"][name]) for name, old in before["listener"].items())


def test_lambda_weighs_the_two_scores(toy):
    def compute_losses(lam, reduction="sum"):
        method = METHODS["st_multinomial"](toy.agents(), Objective(reduction=reduction), lam=lam)
        return method.step(toy.batch(), seed=1)[0]

    low, high = compute_losses(0.2), compute_losses(0.6)
    torch.testing.assert_close(high["discriminability"], 3 * low["discriminability"])
    torch.testing.assert_close(high["naturalness"], low["naturalness"] / 2)
    mean = compute_losses(0.2, "mean")
    torch.testing.assert_close(low["discriminability"], 8 * mean["discriminability"])


def test_pathwise_refuses_a_score_without_gradient(toy):
    with pytest.raises(UserError, match="CiderScore has no gradient with respect to the tokens, which Pathwise needs"):
        Term("naturalness", 1.0, CiderScore(toy.cider), Pathwise(Multinomial()))


def test_score_function_refuses_a_channel_without_log_probabilities(toy):
    with pytest.raises(UserError, match=r"term naturalness: tokens of StraightThrough have no log-probability"):
        Term("naturalness", 1.0, CiderScore(toy.cider), ScoreFunction(StraightThrough()))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"baseline": "leave_one_out"}, "LeaveOneOut"),
        ({"baseline": "group"}, "GroupMean"),
        ({"advantage_scaling": "group"}, "GroupStd"),
    ],
)
def test_group_baselines_refuse_a_single_sample(toy, settings, name):
    with pytest.raises(UserError, match=f"{name} .* expected samples of at least 2, found 1; "):
        METHODS["psst_multinomial"](toy.agents(), Objective(**settings), lam=0.3)
    METHODS["psst_multinomial"](toy.agents(), Objective(samples=2, **settings), lam=0.3)
    with pytest.raises(UserError, match="expected samples of at least 2"):
        METHODS["luo"](toy.agents(), Objective(**settings, centre_advantages=True), lam=0.3)


@pytest.mark.parametrize("baseline", ["greedy", "leave_one_out", "group", "running_mean", "ground_truth", "none"])
@pytest.mark.parametrize("scaling", ["none", "group", "batch"])
def test_every_baseline_goes_with_every_scaling(toy, baseline, scaling):
    objective = Objective(samples=3, baseline=baseline, advantage_scaling=scaling)
    for name in ("luo", "reinforce", "psst_reinmax"):
        method = METHODS[name](toy.agents(), objective, lam=0.3)
        losses, _ = method.step(toy.batch(), seed=1)
        sum(losses.values()).backward()
        assert all(torch.isfinite(p.grad).all() for p in method.agents["speaker"].parameters())


def test_controls_are_added_to_score_function_terms_and_change_no_token(toy):
    plain = METHODS["psst_multinomial"](toy.agents(), Objective(), lam=0.3)
    method = add_relax(METHODS["psst_multinomial"](toy.agents(), Objective(), lam=0.3))
    assert list(method.agents["critic"]) == ["naturalness"]
    assert method.schedule.all_roles == frozenset({"speaker", "listener", "critic"})
    _, plain_report = plain.step(toy.batch(), seed=1)
    losses, report = method.step(toy.batch(), seed=1)
    assert all(torch.equal(report[name], value) for name, value in plain_report.items() if name != "naturalness/loss")
    assert not any(value.requires_grad for value in report.values())
    sum(losses.values()).backward()
    weights = dict(method.agents["critic"]["naturalness"].named_parameters())
    assert {name for name, weight in weights.items() if weight.grad.abs().max() > 0} == {"outer.weight", "outer.bias"}


def test_controls_are_not_added_without_samples_and_refused_beside_a_critic(toy):
    assert add_relax(mle := METHODS["mle"](toy.agents(), Objective())) is mle
    with pytest.raises(UserError, match="has a learned baseline; set control_variate to none"):
        add_relax(METHODS["pg_spider"](toy.agents(), Objective(), lam=0.3))


def test_training_names_no_method():
    sources = list((Path(__file__).parents[1] / "pipeline" / "training").glob("*.py"))
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert len(sources) > 5
    assert not words & (set(METHODS) | {"psst", "gumbel", "reinmax", "relax", "scst"})


@pytest.mark.parametrize("name", METHODS)
def test_equal_seeds_give_equal_losses(name, toy):
    def compute_losses(seed):
        return build_method(name, toy.agents()).step(toy.batch(), seed)[0]

    first, again, other = compute_losses(1), compute_losses(1), compute_losses(2)
    assert all(torch.equal(first[k], again[k]) for k in first)
    if name not in DETERMINISTIC:
        assert any(not torch.equal(first[k], other[k]) for k in first)


def test_the_guides_example_is_a_method(toy):
    text = (Path(__file__).parents[1] / "docs/how_to/method.md").read_text(encoding="utf-8")
    code = text.split("```python title=")[1].partition("\n")[2].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    namespace: dict = {}
    exec(code, namespace)
    before, after = take_steps(namespace["joint_reinforce"](toy.agents(), Objective(), lam=0.3), toy)
    for role in before:
        assert any(not torch.equal(old, after[role][name]) for name, old in before[role].items()), role


def test_default_settings_are_the_papers():
    """PAPERS.md states where papers and published code differ, as for the margin."""
    expected = {
        "margin": 0.2, "negatives": "hardest", "reduction": "sum", "eos_in_reward": True,
        "document_frequencies": "train", "cider_sample": "own", "greedy_dropout": False,
        "centre_advantages": False, "speaker_temperature": 1.0, "cross_entropy_weight": 0.0, "eos_gradient": "constant",
        "normalise_gradients": False, "samples": 1, "baseline": "greedy",
    }  # fmt: skip
    objective = Objective()
    assert {name: getattr(objective, name) for name in expected} == expected


def test_every_relaxing_channel_has_the_eos_gradient_of_the_objective(toy):
    found: dict[str, set[str]] = {}
    for name in METHODS:
        for term in build_method(name, toy.agents(), Objective(eos_gradient="soft")).terms:
            channel = getattr(term.estimator, "channel", None)
            if channel is not None and channel.relaxes:
                found.setdefault(name, set()).add(getattr(channel, "inner", channel).eos_gradient)
    families = ("multinomial", "gumbel", "reinmax", "gumbel_rao")
    assert found == {f"{kind}_{family}": {"soft"} for kind in ("st", "psst") for family in families} | {
        "psst_wtf": {"soft"}
    }


def test_a_critic_is_trained_alone_first(toy):
    agents = toy.agents()
    method = METHODS["pg_spider"](agents, Objective(), reward="cider", critic_first=2)
    assert method.schedule.all_roles == {"speaker", "critic"}
    assert [method.schedule.roles(step) for step in range(4)] == [{"critic"}] * 2 + [{"speaker", "critic"}] * 2
    assert set(method.step(toy.batch(1), seed=1)[0]) == {"critic"}
    before, after = take_steps(method, toy, steps=2)
    assert all(torch.equal(old, after["speaker"][n]) for n, old in before["speaker"].items())
    assert all(not torch.equal(old, after["critic"][n]) for n, old in before["critic"].items())
