"""The generators of a captured step draw a later step's numbers. tests/test_cuda.py has what needs a GPU."""

import pytest
import torch

from pipeline.channels.hard import Multinomial
from pipeline.estimators.rollouts import StepRollouts
from pipeline.random import ReplayedGenerators
from pipeline.training.captured_steps import StepResult, StepRunner

LATER, CAPTURED = 7, 2


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_replayed_generators_draw_the_numbers_of_a_later_step(toy, dropout):
    """Tokens have one stream, and dropout has another that is derived from it."""
    speaker = toy.agents(dropout=dropout).speaker.train()

    def draw(step: int) -> torch.Tensor:
        return StepRollouts(speaker, toy.batch(step), seed=3).of(Multinomial(4)).log_probs.detach()

    expected, generators = draw(LATER), ReplayedGenerators()
    with generators.recording():
        own = draw(CAPTURED)
    generators.seed(LATER)
    with generators.repeating():
        found = draw(CAPTURED)
    assert torch.equal(found, expected)
    assert torch.equal(draw(CAPTURED), own)
    assert own.shape != expected.shape or not torch.equal(own, expected)


def test_on_a_cpu_every_step_runs_directly(toy):
    asked = []

    def compute(batch):
        asked.append(batch.step)
        return StepResult([], torch.zeros(()))

    runner = StepRunner(compute, torch.device("cpu"))
    for step in range(5):
        runner.run(toy.batch(step), frozenset({"speaker"}))
    assert asked == [0, 1, 2, 3, 4]
