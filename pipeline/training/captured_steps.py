"""Training steps on a GPU as CUDA graphs.

A step launches thousands of small kernels, and launching takes longer than computing. A CUDA graph launches all kernels
of a step at once. It repeats them with new inputs: the batch, the learning rate and the seeds.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.random import ReplayedGenerators
from pipeline.runtime import ranks
from pipeline.types import Batch, Report

WAITS = "called a synchronizing CUDA operation"  # the warning of torch.cuda.set_sync_debug_mode
WARMUP = 1  # steps of the same roles before a step is recorded; the first makes everything that is made once


@dataclass(frozen=True)
class StepResult:
    """The output of a training step on the device, besides the new weights."""

    reports: list[Report]
    captions_drawn: Tensor


Compute = Callable[[Batch], StepResult]


@dataclass(frozen=True)
class CapturedStep:
    """A step's graph with the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    result: StepResult

    def replay(self, batch: Batch) -> StepResult:
        """Repeat the step for another batch of the same shapes."""
        for name, read in _tensors(self.batch).items():
            read.copy_(getattr(batch, name))
        self.graph.replay()
        reports = [{name: value.clone() for name, value in report.items()} for report in self.result.reports]
        return StepResult(reports, self.result.captions_drawn.clone())  # the next replay overwrites the result


class StepRunner:
    """Runner of `compute`, a training step: on a GPU as CUDA graphs, else directly.

    A graph holds one combination of trained roles, epoch and shapes. The first step of these roles runs directly.
    Then each combination's first step runs directly and records the generators that it makes. Its second step is
    captured and replayed, and the later ones are replayed.

    Once a recorded step waits for the GPU, such as one with scores of text, no further step is captured or replayed.
    Steps of several ranks, and those whose batch is a subclass of `Batch`, always run directly. The environment
    variable SAYWHICH_CUDA_GRAPHS=0 turns capturing off.

    Direct and captured steps give the same bits. While a step is captured, `batch.step` is None, since it would have
    the same value in every replay. A method that does arithmetic with it raises UserError.
    """

    def __init__(self, compute: Compute, device: torch.device) -> None:
        self._compute = compute
        wanted = os.environ.get("SAYWHICH_CUDA_GRAPHS", "1") != "0"
        self._enabled = device.type == "cuda" and ranks.size() == 1 and wanted
        self._steps_of: dict[frozenset[str], int] = {}  # steps so far of each combination of roles
        self._epoch = -1
        self._recorded: dict[tuple[object, ...], ReplayedGenerators] = {}
        self._captured: dict[tuple[object, ...], CapturedStep] = {}
        self._pool: Any = None  # memory that all graphs share: only one runs at a time

    def run(self, batch: Batch, learners: frozenset[str]) -> StepResult:
        """Run one step that trains the roles `learners`."""
        if not self._enabled or type(batch) is not Batch:  # a replay would keep the nested tensors of a subclass
            return self._compute(batch)
        if batch.epoch != self._epoch:
            self._recorded, self._captured, self._epoch = {}, {}, batch.epoch
        earlier = self._steps_of.get(learners, 0)
        self._steps_of[learners] = earlier + 1
        if earlier < WARMUP:
            return self._compute(batch)
        key = learners, *(x.shape for x in _tensors(batch).values())
        if key not in self._recorded:
            return self._record(batch, key)
        if key not in self._captured:
            self._captured[key] = self._capture(batch, self._recorded[key])
        self._recorded[key].seed(batch.step)
        return self._captured[key].replay(batch)

    def _record(self, batch: Batch, key: tuple[object, ...]) -> StepResult:
        """Run a step directly, and record its generators; give up capturing where it waits for the GPU."""
        self._recorded[key] = generators = ReplayedGenerators()
        with generators.record(), _detect_waits() as noticed:
            result = self._compute(batch)
        self._enabled = not any(WAITS in str(warning.message) for warning in noticed)
        return result

    def _capture(self, batch: Batch, generators: ReplayedGenerators) -> CapturedStep:
        changed: dict[str, Any] = {name: x.clone() for name, x in _tensors(batch).items()} | {"step": None}
        own = replace(batch, **changed)
        graph = torch.cuda.CUDAGraph()
        for generator in generators.generators:
            graph.register_generator_state(generator)
        generators.seed(batch.step)
        stream = torch.cuda.current_stream()
        gc.collect()  # freeing a graph during the capture would end it
        try:
            with (
                _disable_garbage_collection(),
                generators.replay(),
                torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
            ):
                result = self._compute(own)
        except (RuntimeError, TypeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"a training step cannot be captured as a CUDA graph: {reason}; set SAYWHICH_CUDA_GRAPHS=0"
            ) from error
        self._pool = graph.pool()
        return CapturedStep(graph, own, result)


@contextmanager
def gpu_training(device: torch.device) -> Iterator[None]:
    """Prepare a GPU for training in this block: sums have a fixed order, and work is queued on a stream of its own.

    By default, some kernels add in the order in which threads finish, so that equal seeds give other bits. The default
    stream cannot be captured.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    outer, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(outer)
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # nothing reads memory that it has not written
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled
        outer.wait_stream(stream)


@contextmanager
def _disable_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _detect_waits() -> Iterator[list[warnings.WarningMessage]]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield noticed
        finally:
            torch.cuda.set_sync_debug_mode(before)


def _tensors(batch: Batch) -> dict[str, Tensor]:
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
