import subprocess
import sys

import pytest
import torch
from torch import nn

from pipeline.runtime.adam import Adam
from pipeline.training.checkpoint import Checkpoints


def make_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model.extra = nn.Parameter(torch.ones(1))  # this parameter never has a gradient, so Adam has no state for it
    return model


def compute_gradients(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)
    loss = (model(x) - y).square().mean()
    if step == 2:  # in this step the first layer has no gradient
        loss = (model[2](x.new_ones(8, 4)) - y).square().mean()
    loss.backward()


def train(model: nn.Module, adam: Adam, steps: range) -> None:
    for step in steps:
        compute_gradients(model, step)
        adam.step(0.01 / (1 + step))
        assert all(p.grad is None for p in model.parameters())


def are_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_adam_equals_torchs_adam_to_the_bit():
    model, reference = make_model(1), make_model(1)
    adam = Adam(model)
    train(model, adam, range(20))
    torchs_adam = torch.optim.Adam(reference.parameters(), fused=True)
    for step in range(20):
        compute_gradients(reference, step)
        torchs_adam.param_groups[0]["lr"] = 0.01 / (1 + step)
        torchs_adam.step()
        torchs_adam.zero_grad()
    assert are_equal(model.state_dict(), reference.state_dict())
    expected = {
        f"{name}:{quantity}": value
        for name, p in reference.named_parameters()
        for quantity, value in torchs_adam.state[p].items()
    }
    assert are_equal(dict(sorted(adam.tensors().items())), dict(sorted(expected.items())))


def test_a_restored_state_continues_to_the_same_bits(tmp_path):
    model = make_model(1)
    adam = Adam(model)
    train(model, adam, range(6))

    first = make_model(1)
    adam_1 = Adam(first)
    train(first, adam_1, range(3))
    Checkpoints(tmp_path).save(3, {**first.state_dict(), **adam_1.tensors()}, {})

    second = make_model(2)
    adam_2 = Adam(second)
    saved = Checkpoints(tmp_path).load_latest().tensors
    second.load_state_dict({name: saved.pop(name) for name in second.state_dict()})
    adam_2.restore(saved)
    restored = {name: value.clone() for name, value in saved.items()}
    train(second, adam_2, range(3, 6))
    assert are_equal(model.state_dict(), second.state_dict())
    assert are_equal(adam.tensors(), adam_2.tensors())
    assert are_equal(saved, restored), "the restored state is a copy"


def test_the_state_of_another_model_is_refused():
    with pytest.raises(ValueError, match=r"9\.weight"):
        Adam(make_model(1)).restore({"9.weight:exp_avg": torch.zeros(1)})


@pytest.mark.slow
def test_a_training_imports_neither_torchs_compiler_nor_pandas_nor_mlflow():
    """The import of each takes about as long as the first epoch of a small data set."""
    code = """
import sys, torch
import pipeline.composition.joint, pipeline.composition.compose, pipeline.workflow.training
import pipeline.training.fit, pipeline.tracking.recorder
import pipeline.features.detector_training
from pipeline.runtime.adam import Adam
model = torch.nn.Linear(2, 2)
model(torch.ones(1, 2)).sum().backward()
Adam(model).step(0.1)
model(torch.ones(1, 2)).sum().backward()
Adam(model, 0.5).step(0.1)
print(*({"torch._dynamo", "pandas", "mlflow", "sympy", "matplotlib"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
