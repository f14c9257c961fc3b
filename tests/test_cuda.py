"""On a GPU every method's step equals the CPU's, never waits for the device, and gives the same bits when repeated.

The tests are skipped without a GPU. Devices have different random numbers, so comparisons draw on the CPU for both.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Toy, make_reward_models
from every_method import IN_DIALOGS, METHODS
from small_dialogs import make_batch as make_dialog_batch
from small_dialogs import make_discriminator, make_generator
from test_methods import build_method
from toy_batches import ToyBatches

from pipeline.channels.hard import Beam, Greedy
from pipeline.composition.joint import Objective
from pipeline.composition.method import Method
from pipeline.composition.pretraining import build_listener_matching
from pipeline.composition.retrieval_rewards import RewardModels
from pipeline.dialog.composition.dialog_agents import DialogAgents
from pipeline.errors import UserError
from pipeline.evaluation.generate import generate_captions
from pipeline.models.architectures import ARCHITECTURES
from pipeline.models.unroll import generate
from pipeline.random import BatchRandom
from pipeline.runtime import matmul_precision
from pipeline.scores.discriminability import Hinge, InputDropout
from pipeline.training.captured_steps import prepare_gpu_training
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.types import Batch

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SETTINGS = Optimisation(epochs=3, learning_rate=0.01, clip_value=0.1)


@pytest.fixture(autouse=True)
def precision(monkeypatch) -> None:
    """Choose the precision as stages do on a GPU."""
    monkeypatch.delenv("SAYWHICH_MATMUL_PRECISION", raising=False)
    monkeypatch.delenv("SAYWHICH_CUDA_GRAPHS", raising=False)
    matmul_precision.choose_precision((), GPU)


@pytest.fixture
def same_numbers(monkeypatch) -> None:
    """Draw random numbers on the CPU for either device."""
    cpu_generators: dict[int, tuple[torch.Generator, torch.Generator]] = {}

    def draw(self: BatchRandom, x: torch.Tensor, *size: int) -> torch.Tensor:
        rng = None
        if self.rng is not None:  # the table keeps the generator, so that no other one gets its id
            pair = self.rng, torch.Generator().manual_seed(self.rng.initial_seed())
            rng = cpu_generators.setdefault(id(self.rng), pair)[1]
        return torch.rand(*size, generator=rng, dtype=x.dtype).to(x.device)

    monkeypatch.setattr(BatchRandom, "draw", draw)


def make_rewards(device: torch.device) -> RewardModels:
    """Return the toy data's reward models on `device`, as `load_rewards` returns them."""
    models = make_reward_models()
    for module in (models.retriever.encoder, models.discriminator, models.grammar):
        module.to(device)
    models.retriever.vectors = models.retriever.vectors.to(device)
    assert models.retriever.neighbours is not None
    models.retriever.neighbours = models.retriever.neighbours.to(device)
    return models


def make_method(device: torch.device, name: str, toy: Toy, decoder: str = "att2in", dropout: float = 0.3) -> Method:
    """Return a method for the toy data whose modules, CIDEr-D and rewards are on `device`."""
    agents = toy.agents(dropout=dropout, decoder=decoder)
    agents = replace(agents, cider=agents.cider.to(device))
    torch.manual_seed(1)  # critics are initialised at random
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("test_methods.make_reward_models", lambda: make_rewards(device))
        method = build_method(name, agents)
    for module in method.modules().values():
        module.to(device)
    return method


def compute_step(method: Method, batch: Batch) -> dict[str, torch.Tensor]:
    """Return the losses, the report, and the gradients of all agents of one step, on the CPU."""
    roles = method.freeze(batch.step)
    for role, agent in method.agents.items():
        agent.train(role in roles)
    with prepare_gpu_training(batch.device):
        losses, report = method.step(batch, seed=2)
        sum(losses.values()).backward()
    modules = method.modules().items()
    gradients = {f"{m} {n}": p.grad for m, module in modules for n, p in module.named_parameters()}
    found = {f"loss {n}": loss.detach() for n, loss in losses.items()} | report | gradients
    return {name: value.cpu() for name, value in found.items() if value is not None}


def check_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], min_count: int) -> None:
    assert found.keys() == expected.keys()
    assert len(expected) > min_count
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=2e-6, rtol=2e-4, msg=lambda text, k=key: f"{k}: {text}")


@pytest.mark.parametrize("decoder", ARCHITECTURES)
@pytest.mark.parametrize("name", METHODS)
def test_losses_and_gradients_equal_the_cpus(toy, name, decoder, same_numbers):
    dropout = 0.0 if decoder == "transformer" else 0.3  # its dropout depends on the number of steps
    expected = compute_step(make_method(CPU, name, toy, decoder, dropout), toy.batch())
    found = compute_step(make_method(GPU, name, toy, decoder, dropout), toy.batch().to(GPU))
    check_same(found, expected, min_count=10)


@pytest.mark.parametrize("name", IN_DIALOGS)
def test_losses_and_gradients_of_dialogs_equal_the_cpus(name, same_numbers):
    def make_dialog_method(device: torch.device) -> Method:
        agents = DialogAgents(make_generator(), make_discriminator(encode_eos=True))
        method = IN_DIALOGS[name](agents, Objective())
        for module in method.modules().values():
            module.to(device)
        return method

    expected = compute_step(make_dialog_method(CPU), make_dialog_batch())
    check_same(compute_step(make_dialog_method(GPU), make_dialog_batch().to(GPU)), expected, min_count=10)


@pytest.mark.parametrize("name", METHODS)
def test_a_training_step_never_waits_for_the_gpu(toy, name, monkeypatch):
    """The step includes the batch's transfer, generation, backward pass, clipping, Adam and reports."""
    monkeypatch.setenv("SAYWHICH_CUDA_GRAPHS", "0")
    method = make_method(GPU, name, toy)
    training = Training(method, ToyBatches(toy), SETTINGS, seed=4, device=GPU)
    batches = [pin_batch(toy.batch(number)) for number in range(6)]
    for batch in batches[:3]:  # the first step builds objects that later steps reuse
        training.train_step(batch.to(GPU))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches[3:]:
            training.train_step(batch.to(GPU))
    finally:
        torch.cuda.set_sync_debug_mode("default")


Weights = dict[str, torch.Tensor]


def train(method: Method, toy: Toy, folder: Path | None = None, **options: Any) -> tuple[Training, Weights]:
    """Train for three epochs of eight steps; return the training and its weights. `options` are those of ToyBatches."""
    training = Training(method, ToyBatches(toy, steps=8, **options), SETTINGS, seed=4, device=GPU)
    training.run(None if folder is None else Checkpoints(folder), 0.0)
    modules = method.modules().items()
    return training, {f"{name}.{n}": t.clone() for name, module in modules for n, t in module.state_dict().items()}


def list_differences(left: Weights, right: Weights) -> list[str]:
    return [name for name, value in left.items() if not torch.equal(value, right[name])]


@pytest.mark.parametrize("name", METHODS)
def test_captured_steps_give_the_bits_of_direct_ones(toy, name, monkeypatch):
    captured, weights = train(make_method(GPU, name, toy), toy)
    assert captured.runner._captured, "expected captured steps, found none"
    monkeypatch.setenv("SAYWHICH_CUDA_GRAPHS", "0")
    direct, direct_weights = train(make_method(GPU, name, toy), toy)
    assert not direct.runner._captured
    assert not list_differences(weights, direct_weights)
    assert captured.history == direct.history


def pin_batch(batch: Any) -> Any:
    """Return the batch in pinned memory, from which a GPU copies without waiting."""
    tensors = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    return replace(batch, **{n: x.pin_memory() for n, x in tensors.items() if isinstance(x, torch.Tensor)})


def test_captured_steps_draw_new_numbers_of_torchs_own_generator_in_each_step(toy, monkeypatch):
    """Dropout on a listener's inputs draws from torch's own generator, as the layers of transformers do."""

    def train_listener() -> tuple[Training, Weights]:
        listener = toy.agents().listener.to(GPU)
        return train(
            build_listener_matching(listener, InputDropout(Hinge(listener), vector=0.5, words=0.3, unk=2)), toy
        )

    captured, weights = train_listener()
    assert captured.runner._captured
    monkeypatch.setenv("SAYWHICH_CUDA_GRAPHS", "0")
    assert not list_differences(weights, train_listener()[1])


@pytest.mark.parametrize("name", METHODS)
def test_equal_seeds_give_the_same_bits_also_after_an_interruption(toy, name, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(make_method(GPU, name, toy), toy, tmp_path, interrupt_at=13)
    method = make_method(GPU, name, toy)
    with torch.no_grad():  # from these weights a training without the checkpoint would have another result
        for module in method.modules().values():
            for weight in module.parameters():
                weight.zero_()
    _, resumed = train(method, toy, tmp_path)
    _, whole = train(make_method(GPU, name, toy), toy)
    assert not list_differences(whole, resumed)


def test_a_step_that_reads_numbers_on_the_host_is_not_captured(toy):
    method = make_method(GPU, "mle", toy)
    training = Training(method, ToyBatches(toy, steps=8), SETTINGS, seed=4, device=GPU)
    compute = training.runner._compute

    def compute_and_read(batch):
        result = compute(batch)
        result.captions_drawn.item()
        return result

    training.runner._compute = compute_and_read
    training.run()
    assert training.step == 24
    assert not training.runner._captured


def test_a_method_that_computes_with_the_step_is_refused(toy):
    """A captured step would keep the value of its first run in every replay."""
    method = make_method(GPU, "mle", toy)
    training = Training(method, ToyBatches(toy, steps=8), SETTINGS, seed=4, device=GPU)
    compute = training.runner._compute
    training.runner._compute = lambda batch: compute(batch) if batch.step + 1 else None
    with pytest.raises(UserError, match=r"cannot be captured as a CUDA graph.*SAYWHICH_CUDA_GRAPHS=0"):
        training.run()


@pytest.mark.parametrize("channel", [Greedy(), Beam(3)], ids=repr)
def test_evaluations_generate_the_cpus_captions(toy, decoder, channel):
    speaker = toy.agents(decoder=decoder).speaker.eval()
    expected = generate_captions(speaker, [toy.batch()], channel, CPU, unk=-1)
    found = generate_captions(speaker.to(GPU), [toy.batch()], channel, GPU, unk=-1)
    steps = min(found.tokens.shape[-1], expected.tokens.shape[-1])
    assert torch.equal(found.tokens[..., :steps].cpu(), expected.tokens[..., :steps])
    assert not found.tokens[..., steps:].any()
    assert not expected.tokens[..., steps:].any()


def test_a_listener_embeds_captions_as_on_the_cpu(toy):
    """The GRU computes in single precision: TF32, cuDNN's default, would differ in the fourth digit."""
    speaker, listener = toy.agents().speaker.eval(), toy.agents().listener
    with torch.no_grad():
        message = generate(speaker, toy.batch(), Greedy(), torch.Generator().manual_seed(0))
        expected = listener.encode_text(message)
        message = generate(speaker.to(GPU), toy.batch().to(GPU), Greedy(), torch.Generator(GPU).manual_seed(0))
        found = listener.to(GPU).encode_text(message).cpu()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
