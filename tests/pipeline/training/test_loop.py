from __future__ import annotations

import dataclasses
import os
import signal

import pytest
import torch
from conftest import make_reward_models
from toy_batches import ToyBatches

from pipeline.composition.compose import compose
from pipeline.composition.joint import Objective
from pipeline.composition.pretraining import build_listener_matching
from pipeline.errors import UserError
from pipeline.estimators import rollouts
from pipeline.evaluation.validation import Validation
from pipeline.methods.luo import luo
from pipeline.methods.psst import psst_multinomial, reinforce
from pipeline.methods.spider import pg_spider
from pipeline.methods.wtf_rl import psst_wtf, wtf_rl
from pipeline.models.unroll import generate
from pipeline.runtime.signals import StopRequest, raise_requests
from pipeline.scores.discriminability import CollapseRecovery, Hinge
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import RunningMeans, Training, _backpropagate_normalised
from pipeline.training.optimisation import Optimisation

CPU = torch.device("cpu")
FIVE = Optimisation(epochs=5, learning_rate=0.01, schedule="cosine")


def copy_weights(method) -> dict[str, torch.Tensor]:
    found = {}
    for name, module in method.modules().items():
        found |= {f"{name}.{n}": t.clone() for n, t in module.state_dict().items()}
    return found


def train(method, toy, settings=FIVE, interrupt_at=None, folder=None, validate=None):
    training = Training(method, ToyBatches(toy, interrupt_at), settings, seed=4, device=CPU, validate=validate)
    history = training.run(None if folder is None else Checkpoints(folder), every_seconds=0.0)
    return copy_weights(method), history


def are_equal(left, right) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


def test_equal_seeds_give_bit_identical_results(toy):
    first, history = train(psst_multinomial(toy.agents(dropout=0.5), Objective(), 0.3), toy)
    again, history_again = train(psst_multinomial(toy.agents(dropout=0.5), Objective(), 0.3), toy)
    assert are_equal(first, again)
    assert history == history_again
    other, _ = train(psst_multinomial(toy.agents(seed=9, dropout=0.5), Objective(), 0.3), toy)
    assert not are_equal(first, other)


def test_epochs_are_multiplied_to_give_min_steps(toy):
    """Five epochs of three batches are 15 steps. For 40 steps all lengths are multiplied by 3, which gives 45 steps."""
    settings = Optimisation(epochs=5, schedule="step", decay=0.1, decay_every=2, validate_every=5, min_steps=40)
    method = psst_multinomial(toy.agents(), Objective(), 0.3)
    _, history = train(method, toy, settings, validate=lambda: {"cider": 1.0})
    assert history[-1]["step"] == 45
    assert [entry["epoch"] for entry in history if "val/cider" in entry] == [15]
    longer = settings.lengthen(3)
    assert longer.rate(17, 3) == pytest.approx(5e-4)
    assert longer.rate(18, 3) == pytest.approx(5e-5)
    assert settings.lengthen(8) == settings  # already 40 steps
    assert dataclasses.replace(settings, epochs=0).lengthen(3).epochs == 0


def _make_recovery(toy):
    listener = toy.agents().listener
    return build_listener_matching(
        listener, CollapseRecovery(Hinge(listener), warmup=4, patience=2, steps=2, width=0.5)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda toy: psst_multinomial(toy.agents(dropout=0.5), Objective(), 0.3),
        pytest.param(lambda toy: luo(toy.agents(dropout=0.5), Objective(), 0.7), marks=pytest.mark.slow),
        pytest.param(
            lambda toy: luo(toy.agents(dropout=0.5, decoder="lstm"), Objective(), 0.7), marks=pytest.mark.slow
        ),
        lambda toy: pg_spider(toy.agents(dropout=0.5), Objective(), reward="cider", critic_first=5),
        _make_recovery,
        pytest.param(
            lambda toy: wtf_rl(toy.agents(dropout=0.5), Objective(), make_reward_models()), marks=pytest.mark.slow
        ),
        lambda toy: psst_wtf(toy.agents(dropout=0.5), Objective(), make_reward_models(), lam=0.3),
    ],
    ids=["psst", "luo", "lstm", "critic", "recovery", "wtf_rl", "psst_wtf"],
)
def test_a_run_that_is_killed_again_and_again_resumes_to_the_same_bits(toy, tmp_path, make):
    whole, history = train(make(toy), toy)
    for interrupt_at in (1, 3, 7, 14):  # in the first epoch, at its end, later, and in the last step
        with pytest.raises(KeyboardInterrupt):
            train(make(toy), toy, interrupt_at=interrupt_at, folder=tmp_path)
        assert Checkpoints(tmp_path).load_latest().step == interrupt_at
    resumed, history_resumed = train(make(toy), toy, folder=tmp_path)
    assert are_equal(whole, resumed)
    assert history == history_resumed


def test_the_best_epoch_is_kept_also_after_a_kill(toy, tmp_path):
    values = [1.0, 3.0, 2.0, 3.0, 0.0]

    def run(interrupt_at=None, folder=None):
        remaining, validated = iter(values), []
        if folder is not None and interrupt_at is None:
            for _ in range(3):
                next(remaining)
        method = luo(toy.agents(), Objective(), 0.7)

        def validate():
            validated.append(copy_weights(method))
            return {"recall@10": next(remaining)}

        settings = dataclasses.replace(FIVE, select="recall@10")
        return train(method, toy, settings, interrupt_at, folder, validate), validated

    (kept, history), validated = run()
    assert are_equal(kept, validated[1])
    assert not are_equal(kept, validated[3])
    assert [entry["val/recall@10"] for entry in history] == values
    with pytest.raises(KeyboardInterrupt):
        run(interrupt_at=10, folder=tmp_path)
    (resumed, _), _ = run(folder=tmp_path)
    assert are_equal(kept, resumed)


def test_an_unknown_metric_is_named(toy):
    settings = dataclasses.replace(FIVE, select="rsum")
    with pytest.raises(UserError, match=r"no validation metric 'rsum'; choose one of cider"):
        train(luo(toy.agents(), Objective(), 0.7), toy, settings, validate=lambda: {"cider": 1.0})


def test_divergence_ends_training_in_one_line(toy):
    agents = toy.agents()
    with torch.no_grad():
        agents.speaker.logit.bias[2] = float("nan")
    with pytest.raises(UserError, match="diverged before step 3"):
        train(luo(agents, Objective(), 0.7), toy)


def test_weights_with_nan_are_never_kept(toy, tmp_path):
    """A weight is NaN after step 7: the loss is NaN only in step 8, but a checkpoint of step 7 would contain it."""
    folder = tmp_path / "kept"

    def make_training(broken: bool) -> Training:
        training = Training(psst_multinomial(toy.agents(), Objective(), 0.3), ToyBatches(toy), FIVE, seed=4, device=CPU)
        train_step = training.train_step

        def train_and_break(batch):
            train_step(batch)
            if broken and training.step == 7:
                with torch.no_grad():
                    training.method.agents["speaker"].logit.bias[2] = float("nan")

        training.train_step = train_and_break
        return training

    with pytest.raises(UserError, match="diverged before step 7: NaN or infinity in weights of the speaker"):
        make_training(broken=True).run(Checkpoints(folder), every_seconds=0.0)
    assert Checkpoints(folder).load_latest().step == 6
    whole, resumed = make_training(broken=False), make_training(broken=False)
    whole.run()
    resumed.run(Checkpoints(folder), every_seconds=0.0)
    assert are_equal(copy_weights(whole.method), copy_weights(resumed.method))


def test_a_run_does_not_end_with_infinite_weights(toy):
    method = psst_multinomial(toy.agents(), Objective(), 0.3)

    def validate():
        with torch.no_grad():
            method.agents["listener"].word.weight[1] = float("inf")
        return {"cider": 1.0}

    with pytest.raises(UserError, match="NaN or infinity in weights of the listener"):
        train(method, toy, dataclasses.replace(FIVE, epochs=1), validate=validate)


def test_an_infinite_loss_is_detected(toy):
    training = Training(luo(toy.agents(), Objective(), 0.7), ToyBatches(toy), FIVE, seed=4, device=CPU)
    training.means.add({"naturalness/loss": torch.tensor(float("inf"))})
    with pytest.raises(UserError, match="NaN or infinity in naturalness/loss"):
        training.run()


def test_an_exploding_gradient_gives_one_warning(toy, capsys):
    training = Training(luo(toy.agents(), Objective(), 0.7), ToyBatches(toy), FIVE, seed=4, device=CPU)
    for norm in (1.0, 3.0, 2.0, 290.0):
        training._warn_of_growth({"speaker/gradient_norm": norm})
    assert capsys.readouterr().err == ""
    for norm in (40_000.0, 9e9):
        training._warn_of_growth({"speaker/gradient_norm": norm})
    printed = capsys.readouterr().err
    assert printed.count("warning") == 1
    assert "speaker/gradient_norm is 4e+04 before step 0, and was 290 at most" in printed


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGINT])
def test_a_run_saves_its_step_on_a_request_and_resumes_to_the_same_bits(toy, tmp_path, request_):
    whole, _ = train(psst_multinomial(toy.agents(dropout=0.5), Objective(), 0.3), toy)
    method = psst_multinomial(toy.agents(dropout=0.5), Objective(), 0.3)
    training = Training(method, ToyBatches(toy), FIVE, seed=4, device=CPU)
    train_step = training.train_step

    def train_and_request_stop(batch):
        if training.step == 7:
            os.kill(os.getpid(), request_)
        train_step(batch)

    training.train_step = train_and_request_stop
    with pytest.raises(StopRequest) as stopped, raise_requests():
        training.run(Checkpoints(tmp_path), every_seconds=1e9)
    assert stopped.value.request == request_
    assert Checkpoints(tmp_path).load_latest().step == 8
    resumed, _ = train(psst_multinomial(toy.agents(dropout=0.5), Objective(), 0.3), toy, folder=tmp_path)
    assert are_equal(whole, resumed)


def test_validating_changes_nothing(toy):
    without, _ = train(luo(toy.agents(dropout=0.5), Objective(), 0.7), toy)
    with_validation, _ = train(
        luo(toy.agents(dropout=0.5), Objective(), 0.7), toy, validate=lambda: {"x": float(torch.rand(1))}
    )
    assert are_equal(without, with_validation)


def test_the_start_and_each_part_of_an_epoch_are_validated_and_a_killed_run_resumes_equally(toy, tmp_path):
    settings = dataclasses.replace(FIVE, epochs=2, validations_per_epoch=2)

    def drop_validation(entry):
        return {name: value for name, value in entry.items() if name != "val/number"}

    def run(**options):
        values = iter(range(10))
        return train(psst_multinomial(toy.agents(), Objective(), 0.5), toy, settings,
                     validate=lambda: {"number": float(next(values))}, **options)  # fmt: skip

    whole, history = run()
    assert [(entry["epoch"], entry["step"]) for entry in history] == [(0, 0), (0.667, 2), (1, 3), (1.667, 5), (2, 6)]
    assert [entry["val/number"] for entry in history] == [0, 1, 2, 3, 4]
    assert are_equal(
        whole, train(psst_multinomial(toy.agents(), Objective(), 0.5), toy, dataclasses.replace(FIVE, epochs=2))[0]
    )
    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path, interrupt_at=4)
    resumed, again = run(folder=tmp_path)
    assert are_equal(whole, resumed)
    assert [drop_validation(entry) for entry in again] == [drop_validation(entry) for entry in history]


def test_validation_uses_evaluation_mode_and_training_continues_with_dropout(toy, monkeypatch):
    agents = toy.agents(dropout=0.5)
    every_agent, validation_modes, training_modes = agents.roles.values(), [], []
    compute_metrics = Validation(agents.speaker, agents.listener, agents.cider, lambda: [toy.batch()], CPU, 12)

    def validate():
        validation_modes.append((any(agent.training for agent in every_agent), torch.is_grad_enabled()))
        return compute_metrics()

    def record_mode(speaker, batch, channel, *rest):
        if channel.requires_grad:
            training_modes.append(speaker.training)
        return generate(speaker, batch, channel, *rest)

    monkeypatch.setattr(rollouts, "generate", record_mode)
    with_validation, history = train(psst_multinomial(agents, Objective(), 0.3), toy, validate=validate)
    assert validation_modes == [(False, False)] * 5
    assert training_modes == [True] * (2 * 15)  # two terms, three steps an epoch
    assert {name: history[-1][f"val/{name}"] for name in compute_metrics()} == compute_metrics()
    without, _ = train(psst_multinomial(toy.agents(dropout=0.5), Objective(), 0.3), toy)
    assert are_equal(without, with_validation)


def test_means_are_over_the_steps_that_reported_a_value():
    means = RunningMeans()
    means.add({"a": torch.tensor(1.0), "b": torch.tensor(4.0)})
    means.add({"a": torch.tensor(3.0)})
    assert means.take() == {"a": 2.0, "b": 4.0}
    means.add({"a": torch.tensor(5.0)})
    assert means.take() == {"a": 5.0}


def test_a_normalised_step_is_the_weighted_sum_of_unit_gradients(toy):
    lam = 0.3
    for name in ("discriminability", "naturalness"):
        assert name in psst_multinomial(toy.agents(), Objective(), lam).weights
    plain = psst_multinomial(toy.agents(), Objective(), lam)
    losses, _ = plain.step(toy.batch(), seed=4)
    expected = {}
    for role, agent in plain.agents.items():
        for loss in losses.values():
            weights = dict(agent.named_parameters())
            gradients = torch.autograd.grad(loss, list(weights.values()), retain_graph=True, allow_unused=True)
            present = [g for g in gradients if g is not None]
            if not present:
                continue
            norm = torch.stack([g.square().sum() for g in present]).sum().sqrt()
            weight = lam if loss is losses["discriminability"] else 1 - lam
            for parameter, gradient in zip(weights, gradients, strict=True):
                if gradient is not None:
                    key = f"{role}.{parameter}"
                    expected[key] = expected.get(key, 0) + weight * gradient / norm
    normalised = compose(psst_multinomial, toy.agents(), Objective(normalise_gradients=True), {"lam": lam})
    assert normalised.normalise_gradients
    losses, _ = normalised.step(toy.batch(), seed=4)
    _backpropagate_normalised(losses, normalised.weights, list(normalised.agents.values()))
    for role, agent in normalised.agents.items():
        for parameter, value in agent.named_parameters():
            torch.testing.assert_close(value.grad, expected[f"{role}.{parameter}"])


def test_a_negative_weight_keeps_its_sign_in_normalised_gradients():
    agent = torch.nn.Linear(2, 1, bias=False)
    loss = -2.0 * agent(torch.tensor([3.0, 4.0])).sum()
    _backpropagate_normalised({"penalty": loss}, {"penalty": -2.0}, [agent])
    torch.testing.assert_close(agent.weight.grad, torch.tensor([[-1.2, -1.6]]))


def test_normalised_gradients_do_not_depend_on_the_scale_of_a_score(toy):
    """Without normalisation, the sum over the batch and the mean correspond to different λ."""
    found = [
        train(
            compose(
                psst_multinomial,
                toy.agents(),
                Objective(reduction=reduction, normalise_gradients=normalise),
                {"lam": 0.3},
            ),
            toy,
        )[0]
        for normalise in (True, False)
        for reduction in ("sum", "mean")
    ]
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], atol=1e-4, rtol=1e-3)
    assert any(not torch.allclose(found[2][n], found[3][n], atol=1e-3) for n in found[2])


def test_training_ends_when_validation_has_saturated_also_after_a_kill(toy, tmp_path):
    settings = dataclasses.replace(FIVE, epochs=9, select="cider", validate_every=1, patience=2)
    values = [1.0, 3.0, 2.0, 2.5, 9.0]

    def make():
        remaining = iter(values)
        return lambda: {"cider": next(remaining)}

    whole, history = train(luo(toy.agents(), Objective(), 0.5), toy, settings, validate=make())
    assert [entry["val/cider"] for entry in history] == [1.0, 3.0, 2.0, 2.5]
    with pytest.raises(KeyboardInterrupt):
        train(luo(toy.agents(), Objective(), 0.5), toy, settings, 10, tmp_path, make())
    later = iter(values[3:])
    resumed, again = train(
        luo(toy.agents(), Objective(), 0.5), toy, settings, None, tmp_path, lambda: {"cider": next(later)}
    )
    assert again == history
    assert are_equal(whole, resumed)


def test_a_run_that_saturated_within_an_epoch_completes_the_epoch_also_after_a_kill(toy, tmp_path):
    """The values after steps 0, 1 and 2 have saturated, but a training ends only after a whole epoch."""
    settings = dataclasses.replace(FIVE, epochs=9, select="cider", validations_per_epoch=3, patience=1)

    def run(first: int = 0, **options):
        values = iter([3.0, 2.0, 1.0, 4.0, 2.0, 1.0, 2.0][first:])
        return train(
            luo(toy.agents(), Objective(), 0.5), toy, settings, validate=lambda: {"cider": next(values)}, **options
        )

    whole, history = run()
    assert [entry["step"] for entry in history] == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(KeyboardInterrupt):
        run(interrupt_at=2, folder=tmp_path)
    resumed, again = run(first=3, folder=tmp_path)
    assert again == history
    assert are_equal(whole, resumed)


def test_unscheduled_speakers_generate_without_dropout(toy, monkeypatch):
    modes = []
    agents = toy.agents(dropout=0.5)
    monkeypatch.setattr(
        rollouts, "generate", lambda speaker, *rest: (modes.append(speaker.training), generate(speaker, *rest))[1]
    )
    train(reinforce(agents, Objective(), 0.3), toy, dataclasses.replace(FIVE, epochs=2))
    assert modes[:2] == [True, False]  # the speaker's sample and the greedy caption
    assert modes[2:4] == [False, True]  # the listener's step, and the speaker's next step


def test_learning_rates():
    step = Optimisation(epochs=30, learning_rate=1.0, schedule="step", decay=0.5, decay_every=10)
    assert [step.rate(s, 10) for s in (0, 99, 100, 299)] == [1.0, 1.0, 0.5, 0.25]
    cosine = Optimisation(epochs=10, learning_rate=1.0, schedule="cosine")
    assert cosine.rate(0, 10) == 1.0
    assert cosine.rate(50, 10) == pytest.approx(0.5)
    assert cosine.rate(99, 10) == pytest.approx(0.000247, abs=1e-5)


def test_a_continued_epoch_counter_decays_as_the_published_joint_training_does():
    """PSST multiplies 5e-3 by .75 every 15 epochs, counted from 200: by .75^13 at first, by .75^14 after ten epochs."""
    settings = Optimisation(
        epochs=150, learning_rate=5e-3, schedule="step", decay=0.75, decay_every=15, start_epoch=200
    )
    rates = [settings.rate(epoch * 4, 4) for epoch in (0, 9, 10, 24, 25, 149)]
    by_hand = [1.187863e-4, 1.187863e-4, 8.908974e-5, 8.908974e-5, 6.681731e-5, 6.689275e-6]
    assert rates == pytest.approx(by_hand, rel=1e-5)
    longer = dataclasses.replace(settings, min_steps=150 * 4 * 2).lengthen(4)  # all lengths in epochs are doubled
    assert [longer.rate(epoch * 4, 4) for epoch in (0, 19, 20, 299)] == pytest.approx(
        [by_hand[i] for i in (0, 1, 2, 5)]
    )


def test_gradients_are_clipped():
    layer = torch.nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.tensor([[3.0, -4.0]])
    Optimisation(epochs=1, clip_value=None, clip_norm=1.0).clip(layer.parameters())
    torch.testing.assert_close(layer.weight.grad, torch.tensor([[0.6, -0.8]]))
    Optimisation(epochs=1, clip_value=0.7).clip(layer.parameters())
    torch.testing.assert_close(layer.weight.grad, torch.tensor([[0.6, -0.7]]))


def test_the_norm_is_limited_before_the_elements_are():
    """Norm 1 turns (3, -4) into (.6, -.8), and the limit .7 gives (.6, -.7). The other order would give (.7, -.7)."""
    layer = torch.nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.tensor([[3.0, -4.0]])
    Optimisation(epochs=1, clip_value=0.7, clip_norm=1.0).clip(layer.parameters())
    torch.testing.assert_close(layer.weight.grad, torch.tensor([[0.6, -0.7]]))


class RandomScore:
    """Score that draws from torch's global stream, as dropout does, and records the number."""

    differentiable = True

    def __init__(self, listener) -> None:
        self.listener, self.drawn = listener, []

    def __call__(self, message, batch):
        self.drawn.append(float(torch.rand(())))
        return self.listener.encode_text(message).sum(1)


def draw_numbers(toy, seed: int = 4, **options) -> list[float]:
    """Return the random numbers of 15 steps."""
    score = RandomScore(toy.agents().listener)
    training = Training(
        build_listener_matching(score.listener, score), ToyBatches(toy), FIVE, seed=seed, device=CPU, **options
    )
    training.run()
    return score.drawn


def test_torchs_global_stream_is_reseeded_in_every_step(toy):
    found = draw_numbers(toy)
    assert len(set(found)) == 15
    assert found == draw_numbers(toy, validate=lambda: {"x": float(torch.rand(()))})
    assert not set(found) & set(draw_numbers(toy, seed=5))


def measure_step(method, toy, rate: float, steps: int = 1, **options: float) -> dict[str, float]:
    """Return the largest change of a weight of each role; in Adam's first step it is the learning rate."""
    initial = {role: [p.detach().clone() for p in agent.parameters()] for role, agent in method.agents.items()}
    settings = Optimisation(epochs=1, learning_rate=rate, validate_every=0, **options)
    training = Training(method, ToyBatches(toy), settings, seed=4, device=CPU)
    for step in range(steps):
        training.train_step(toy.batch(step))
    return {
        role: max(
            float((p.detach() - old).abs().max()) for p, old in zip(agent.parameters(), initial[role], strict=True)
        )
        for role, agent in method.agents.items()
    }


def test_every_role_has_its_own_or_the_common_learning_rate(toy):
    method = psst_multinomial(toy.agents(), Objective(), 0.3)
    assert measure_step(method, toy, 0.01) == pytest.approx({"speaker": 0.01, "listener": 0.01}, rel=0.01)
    for rates, expected in (
        ({"listener": 0.03}, {"speaker": 0.01, "listener": 0.03}),
        ({"speaker": 0.002}, {"speaker": 0.002, "listener": 0.01}),
        ({"speaker": 0.0, "listener": 0.05}, {"speaker": 0.0, "listener": 0.05}),
    ):
        method = dataclasses.replace(psst_multinomial(toy.agents(), Objective(), 0.3), rates=rates)
        assert measure_step(method, toy, 0.01) == pytest.approx(expected, rel=0.01)


def test_a_roles_own_learning_rate_does_not_follow_the_schedule(toy):
    """The cosine rates of three steps are 1, 3/4 and 1/4 of the first.

    The change over all steps also depends on the signs of the gradients, so each step is measured.
    """
    settings = Optimisation(epochs=1, learning_rate=0.01, schedule="cosine", validate_every=0)
    moved = {}
    for rates in ({}, {"listener": 0.01}):
        agents = toy.agents()
        method = dataclasses.replace(
            build_listener_matching(agents.listener, Hinge(agents.listener, negatives="all")), rates=rates
        )
        training, moves = Training(method, ToyBatches(toy), settings, seed=4, device=CPU), []
        for _ in range(3):
            previous = [p.detach().clone() for p in agents.listener.parameters()]
            training.train_step(toy.batch())
            current = agents.listener.parameters()
            moves.append(max(float((p.detach() - old).abs().max()) for p, old in zip(current, previous, strict=True)))
        moved[bool(rates)] = moves
    assert moved[False] == pytest.approx([0.01, 0.0075, 0.0025], rel=0.2)
    assert moved[True] == pytest.approx([0.01, 0.01, 0.01], rel=0.2)


def test_unscheduled_roles_stay_unchanged(toy):
    assert measure_step(luo(toy.agents(), Objective(), 0.7), toy, 0.01)["listener"] == 0
    moved = measure_step(reinforce(toy.agents(), Objective(), 0.3), toy, 0.01)
    assert moved == pytest.approx({"speaker": 0.01, "listener": 0.0}, rel=0.01)
    moved = measure_step(reinforce(toy.agents(), Objective(), 0.3), toy, 0.01, steps=2)
    assert moved == pytest.approx({"speaker": 0.01, "listener": 0.01}, rel=0.01)


def test_gradients_are_clipped_before_the_step(toy):
    """Adam moves a weight by the rate times |g| / (|g| + 1e-8): a gradient of 1e-10 moves it by 1 % of the rate."""
    method = psst_multinomial(toy.agents(), Objective(), 0.3)
    moved = measure_step(method, toy, 0.01, clip_value=1e-10)
    assert 0 < max(moved.values()) < 0.0002


def test_the_history_has_every_epoch_with_its_last_step_and_the_rate_of_that_step(toy):
    settings = Optimisation(epochs=4, learning_rate=0.01, schedule="step", decay=0.1, decay_every=1)
    _, history = train(psst_multinomial(toy.agents(), Objective(), 0.3), toy, settings)
    assert [(entry["epoch"], entry["step"]) for entry in history] == [(1, 3), (2, 6), (3, 9), (4, 12)]
    assert [entry["learning_rate"] for entry in history] == pytest.approx([0.01, 0.001, 0.0001, 0.00001])


def test_a_normalised_loss_with_zero_gradient_changes_nothing():
    layer = torch.nn.Linear(2, 1)
    flat, steep = 0 * layer(torch.ones(2)).sum(), layer(torch.ones(2)).sum()
    _backpropagate_normalised({"flat": flat, "steep": steep}, {"flat": 0.5, "steep": 2.0}, [layer])
    torch.testing.assert_close(layer.weight.grad, torch.full((1, 2), 2 / 3**0.5))


def test_losses_are_checked_every_25_steps(toy):
    """RELIABILITY.md states after how many steps a loss that is not finite ends training."""

    class LongEpoch(ToyBatches):
        def __len__(self) -> int:
            return 60

        def epoch(self, epoch: int, start: int = 0):
            yield from (self.toy.batch(step) for step in range(start, 60))

    steps, settings = [], dataclasses.replace(FIVE, epochs=1)
    method = build_listener_matching(toy.agents().listener, Hinge(toy.agents().listener))
    training = Training(method, LongEpoch(toy), settings, 4, CPU, record=lambda values, step: steps.append(step))
    training.run()
    assert sorted(set(steps)) == [25, 50, 60]


def test_the_result_is_the_first_of_the_best_entries_or_the_last_one(toy):
    history = [{"epoch": n, "val/cider": value} for n, value in enumerate((1.0, 3.0, 2.0, 3.0))]
    for select, epoch in (("cider", 1), ("last", 3)):
        settings = dataclasses.replace(FIVE, select=select)
        training = Training(luo(toy.agents(), Objective(), 0.7), ToyBatches(toy), settings, seed=4, device=CPU)
        training.history = history
        assert training.find_kept_entry()["epoch"] == epoch


def test_a_training_of_zero_steps_keeps_step_0(toy):
    training = Training(psst_multinomial(toy.agents(), Objective(), 0.3), ToyBatches(toy), FIVE, seed=4, device=CPU)
    assert training.find_kept_entry() == {"epoch": 0, "step": 0}
