"""Random numbers of replayed steps, and the choice of the steps to capture.

The tests that need a GPU are in tests/test_cuda.py.
"""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from warnings import WarningMessage

import pytest
import torch
from small_dialogs import make_batch as dialog_batch

from pipeline.channels.hard import Multinomial
from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts
from pipeline.random import BatchRandom, ReplayedGenerators
from pipeline.training import captured_steps
from pipeline.training.captured_steps import StepResult, StepRunner

LATER, CAPTURED = 7, 2


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_replayed_generators_draw_the_numbers_of_a_later_step(toy, dropout):
    """Tokens have one stream, and dropout has another that is derived from it."""
    speaker = toy.agents(dropout=dropout).speaker.train()

    def draw(step: int) -> torch.Tensor:
        return StepRollouts(speaker, toy.batch(step), seed=3).get_message(Multinomial(4)).log_probs.detach()

    expected, generators = draw(LATER), ReplayedGenerators()
    with generators.record():
        own = draw(CAPTURED)
    generators.seed(LATER)
    with generators.replay():
        found = draw(CAPTURED)
    assert torch.equal(found, expected)
    assert torch.equal(draw(CAPTURED), own)
    assert own.shape != expected.shape or not torch.equal(own, expected)


def test_on_a_cpu_every_step_runs_directly(toy):
    steps = []

    def compute(batch):
        steps.append(batch.step)
        return StepResult([], torch.zeros(()))

    runner = StepRunner(compute, torch.device("cpu"))
    for step in range(5):
        runner.run(toy.batch(step), frozenset({"speaker"}))
    assert steps == [0, 1, 2, 3, 4]


def run_steps(toy, monkeypatch, steps, warned=()) -> list[str]:
    """Return the calls of a runner for a GPU over `steps`, which are pairs of an epoch and the trained role."""
    calls: list[str] = []

    def compute(batch):
        calls.append("direct")
        return StepResult([], torch.zeros(()))

    def capture(batch, generators):
        calls.append("capture")
        return SimpleNamespace(replay=lambda batch: calls.append("replay"))

    monkeypatch.setattr(captured_steps, "_record_sync_warnings", lambda: nullcontext(warned))
    runner = StepRunner(compute, torch.device("cuda"))
    monkeypatch.setattr(runner, "_capture", capture)
    for number, (epoch, role) in enumerate(steps):
        runner.run(replace(toy.batch(number), epoch=epoch), frozenset({role}))
    return calls


def test_steps_are_captured_once_for_each_epoch_and_trained_role(toy, monkeypatch):
    first = ["direct", "direct", "capture", "replay", "replay"]
    later = ["direct", "capture", "replay", "replay", "replay"]
    assert run_steps(toy, monkeypatch, [(0, "speaker")] * 4 + [(1, "speaker")] * 4) == first + later
    alternating_steps = [(0, role) for _ in range(3) for role in ("speaker", "listener")]
    assert run_steps(toy, monkeypatch, alternating_steps) == ["direct"] * 4 + ["capture", "replay"] * 2


def test_steps_that_wait_for_the_gpu_are_never_captured(toy, monkeypatch):
    warned = [WarningMessage(UserWarning(f"{captured_steps.SYNC_WARNING} (Triggered internally)"), UserWarning, "", 0)]
    assert run_steps(toy, monkeypatch, [(0, "speaker")] * 6, warned) == ["direct"] * 6


def test_steps_on_batches_with_nested_tensors_are_never_captured(toy, monkeypatch):
    """A replay copies the tensors of a `Batch` alone: a graph would keep the questions of its first dialogs."""
    monkeypatch.setattr(toy, "batch", lambda number: dialog_batch(seed=number))
    assert run_steps(toy, monkeypatch, [(0, "speaker")] * 6) == ["direct"] * 6


def test_no_step_is_captured_where_the_environment_forbids_it(toy, monkeypatch):
    monkeypatch.setenv("SAYWHICH_CUDA_GRAPHS", "0")
    assert run_steps(toy, monkeypatch, [(0, "speaker")] * 6) == ["direct"] * 6


def test_a_step_with_a_generator_of_its_own_is_refused(toy):
    own = BatchRandom(toy.batch(), torch.Generator().manual_seed(1))
    with ReplayedGenerators().record(), pytest.raises(UserError, match=r"rollouts\.random"):
        own.derive_stream(1)
