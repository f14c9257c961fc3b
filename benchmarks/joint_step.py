"""A training step at the papers' size and at the scenes' size: decoding, CIDEr-D, backward, clipping, updates by Adam.

    python benchmarks/joint_step.py

The floor of a step is the time of its operations at this machine's rate of matrix products. The rate is measured in the
same run, on a CPU with the faster of PyTorch's own and oneDNN's products. `plain` is the step of benchmarks/plain.py:
ended captions stay in the batch, the listener's words are distributions over tokens, and autograd differentiates every
step.
"""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import plain
import torch
from paper_size import BATCH, SIZE, WORDS, make_agents, measure_fastest, measure_matmul_rate
from printing import begin_table
from scenes_size import make_scenes_agents
from torch.utils.flop_counter import FlopCounterMode

from pipeline.composition.joint import Agents, Objective
from pipeline.composition.method import Method
from pipeline.composition.pretraining import build_listener_matching
from pipeline.methods.likelihood import mle
from pipeline.methods.luo import luo
from pipeline.methods.psst import psst_multinomial, reinforce
from pipeline.models.decoder import Decoder
from pipeline.models.lstm import PooledLstm
from pipeline.models.transformer import Transformer
from pipeline.runtime import matmul_precision
from pipeline.runtime.memory import keep_freed
from pipeline.scores.discriminability import Hinge
from pipeline.training.captured_steps import prepare_gpu_training
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.types import Batch

METHODS = {
    "psst_multinomial": psst_multinomial,
    "luo": luo,
    "reinforce": reinforce,
    "self_critical": luo,
    "mle": mle,
}
LAMBDA = {
    "psst_multinomial": 0.01,
    "luo": 0.5,
    "reinforce": 0.5,
    "self_critical": 0.0,
    "mle": 0.0,
}


NO_OPTIONS: Mapping[str, Any] = {}
WITHOUT_GRAPHS = {"SAYWHICH_CUDA_GRAPHS": "0"}
SCENES_OPTIONS: dict[str, dict[str, Any]] = {"psst_multinomial": {"rho": 0.75}}  # options of params.yaml, by method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = [*METHODS, "listener"]
    parser.add_argument("--methods", nargs="+", default=steps, choices=steps)
    parser.add_argument("--lengths", nargs="+", type=int, default=[16, 10], choices=(16, 10), help="words per caption")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--times", type=int, default=4, help="steps, of which the fastest counts; scenes take five times as many"
    )
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="leave out the plain form")
    parser.add_argument("--speakers", action="store_true", help="time the steps of other speakers, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed()
    with prepare_gpu_training(torch.device(options.device)):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    rate = measure_matmul_rate(options.device)
    print_row = begin_table(
        "A training step at the papers' size",
        *("step", "words", "s", "images/s", "GFLOP", "floor, s", "of floor", "plain, s", "ratio"),
    )
    for name in options.methods:
        for length in options.lengths:
            agents, batch = make_agents(length, options.device)
            step = make_step(name, agents, batch)
            with FlopCounterMode(display=False) as counter:
                step()
            floor = counter.get_total_flops() / rate
            spent = measure_fastest(step, options.device, options.times)
            plain_cells = "–", "–"
            if options.peer and name != "listener":
                plain_seconds = measure_plain_step(name, agents, batch, options.device, max(1, options.times // 2))
                plain_cells = f"{plain_seconds:.3g}", f"{plain_seconds / spent:.2f}"
            own_cells = (
                f"{spent:.3g}",
                f"{BATCH / spent:.0f}" if spent < 1 else f"{BATCH / spent:.1f}",
                f"{counter.get_total_flops() / 1e9:.0f}",
            )
            print_row(name, length, *own_cells, f"{floor:.3g}", f"{floor / spent:.0%}", *plain_cells)
    measure_scenes_steps(options.methods, options.device, options.times, options.peer)
    if options.speakers:
        measure_other_speakers(options.methods, options.device, options.times)
    if options.device != "cpu":
        measure_cuda_graphs(options.methods, options.device, options.times)
    if options.device == "cpu" and not options.peer:
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


def measure_plain_step(
    name: str, agents: Agents, batch: Batch, device: str, times: int, options: Mapping[str, Any] = NO_OPTIONS
) -> float:
    """Return the seconds of the fastest of `times` steps of the plain form."""
    plain_agents = replace(agents, listener=plain.PlainListener.from_listener(agents.listener))
    with (
        patch.dict(os.environ, WITHOUT_GRAPHS),
        patch.multiple(
            "pipeline.estimators.rollouts", generate=plain.plain_generate, teacher_force=plain.plain_teacher_force
        ),
    ):
        return measure_fastest(make_step(name, plain_agents, batch, options), device, times)


def measure_scenes_steps(methods: Sequence[str], device: str, times: int, peer: bool) -> None:
    """Time the steps of the drawn scenes with torch's own matrix products, which training uses for small models."""
    torch.set_float32_matmul_precision(matmul_precision.OWN)
    agents, batch = make_scenes_agents()
    agents = replace(agents, speaker=agents.speaker.to(device), listener=agents.listener.to(device))
    agents, batch = replace(agents, cider=agents.cider.to(device)), batch.to(device)
    print_row = begin_table(
        "A training step at the size of the scenes", "step", "ms", "images/s", "GFLOP", "plain, ms", "ratio"
    )
    for name in methods:
        options = SCENES_OPTIONS.get(name, NO_OPTIONS)
        step = make_step(name, agents, batch, options)
        with FlopCounterMode(display=False) as counter:
            step()
        spent, cells = measure_fastest(step, device, 5 * times), ("–", "–")
        if peer and name != "listener":
            seconds = measure_plain_step(name, agents, batch, device, times, options)
            cells = f"{1e3 * seconds:.3g}", f"{seconds / spent:.2f}"
        print_row(
            name, f"{1e3 * spent:.3g}", f"{len(batch) / spent:.0f}", f"{counter.get_total_flops() / 1e9:.1f}", *cells
        )


def measure_cuda_graphs(methods: Sequence[str], device: str, times: int) -> None:
    """Compare the times of steps that are launched as CUDA graphs and kernel by kernel, at both sizes."""
    print_row = begin_table(
        "Training steps as CUDA graphs", "step", "size", "graph, ms", "kernel by kernel, ms", "ratio"
    )
    scenes, scenes_batch = make_scenes_agents()
    scenes = replace(scenes, speaker=scenes.speaker.to(device), listener=scenes.listener.to(device))
    sizes = {
        "papers'": make_agents(10, device),
        "scenes'": (replace(scenes, cider=scenes.cider.to(device)), scenes_batch.to(device)),
    }
    for name in methods:
        for size, (agents, batch) in sizes.items():
            seconds = measure_fastest(make_step(name, agents, batch), device, times)
            with patch.dict(os.environ, WITHOUT_GRAPHS):
                direct = measure_fastest(make_step(name, agents, batch), device, times)
            print_row(name, size, f"{1e3 * seconds:.1f}", f"{1e3 * direct:.1f}", f"{direct / seconds:.1f}")


def measure_other_speakers(methods: Sequence[str], device: str, times: int) -> None:
    """Time the steps of transformers with about as many parameters as Att2in2, and of an LSTM without attention."""
    agents, batch = make_agents(16, device)
    columns = "speaker", "million parameters", "Att2in2's", "s", "Att2in2, s", "ratio"
    print_row = begin_table("A training step of other speakers", "step", *columns)
    transformer = partial(Transformer, layers=1, heads=8)
    makers: dict[str, Callable[..., Decoder]] = {
        "transformer, hidden 512": partial(transformer, hidden=512, encoder_layers=0),
        "transformer with an encoder, hidden 448": partial(transformer, hidden=448, encoder_layers=1),
        "LSTM without attention": partial(PooledLstm, words=512, hidden=512),
    }
    for speaker, make in makers.items():
        other = make(WORDS, SIZE, dropout=0.5).to(device)
        with torch.no_grad():
            other.logit.bias.copy_(agents.speaker.logit.bias)
        sizes = [sum(p.numel() for p in decoder.parameters()) / 1e6 for decoder in (other, agents.speaker)]
        for name in methods:
            if name != "listener":
                seconds = measure_fastest(make_step(name, replace(agents, speaker=other), batch), device, times)
                att2in = measure_fastest(make_step(name, agents, batch), device, times)
                size_cells = (f"{size:.1f}" for size in sizes)
                print_row(name, speaker, *size_cells, f"{seconds:.2f}", f"{att2in:.2f}", f"{att2in / seconds:.2f}")


def make_step(name: str, agents: Agents, batch: Batch, options: Mapping[str, Any] = NO_OPTIONS) -> Callable[[], None]:
    """Return a function that runs one training step for each set of roles in the method's schedule."""
    if name == "listener":
        method: Method = build_listener_matching(agents.listener, Hinge(agents.listener))
    else:
        method = METHODS[name](agents, Objective(), LAMBDA[name], **options)
    settings = Optimisation(epochs=1, learning_rate=1e-9, clip_value=0.1)
    training = Training(method, RepeatedBatch(batch), settings, seed=0, device=batch.device)

    def step() -> None:
        for _ in method.schedule.order:
            training.train_step(replace(batch, step=training.step))

    return step


@dataclass(frozen=True)
class RepeatedBatch:
    """An epoch of one batch."""

    batch: Batch

    def __len__(self) -> int:
        return 1

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch]:
        yield self.batch


if __name__ == "__main__":
    main()
