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

SYNC_WARNING = "called a synchronizing CUDA operation"  # the warning of torch.cuda.set_sync_debug_mode
WARMUP = 1  # direct steps of the same roles before a step is recorded; the first allocates lasting state


@dataclass(frozen=True)
class StepResult:
    """Output of a training step on the device, besides the new weights."""

    reports: list[Report]
    captions_drawn: Tensor


Compute = Callable[[Batch], StepResult]


@dataclass(frozen=True)
class CapturedStep:
    """CUDA graph of a step with the memory that the graph reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    result: StepResult

    def replay(self, batch: Batch) -> StepResult:
        """Run the step on another batch of the same shapes."""
        for name, static in _get_tensors(self.batch).items():
            static.copy_(getattr(batch, name))
        self.graph.replay()
        reports = [{name: value.clone() for name, value in report.items()} for report in self.result.reports]
        return StepResult(reports, self.result.captions_drawn.clone())  # the next replay overwrites the result


class StepRunner:
    """Runner of `compute`, a training step: on a GPU as CUDA graphs, else directly.

    A graph holds one combination of trained roles, epoch and shapes. The first step of these roles runs directly.
    Then each combination's first step runs directly, and its new random generators are recorded. The second step is
    captured and replayed, and later steps are replayed.

    Once a recorded step waits for the GPU, such as one with scores of text, no further step is captured or replayed.
    Steps of several ranks, and steps on a subclass of `Batch`, always run directly. The environment variable
    SAYWHICH_CUDA_GRAPHS=0 turns capturing off.

    Direct and captured steps give the same bits. While a step is captured, `batch.step` is None, since it would have
    the same value in every replay. Raises UserError for a method that computes with `batch.step`.
    """

    def __init__(self, compute: Compute, device: torch.device) -> None:
        self._compute = compute
        requested = os.environ.get("SAYWHICH_CUDA_GRAPHS", "1") != "0"
        self._enabled = device.type == "cuda" and ranks.count_ranks() == 1 and requested
        self._step_counts: dict[frozenset[str], int] = {}  # number of steps by combination of roles
        self._epoch = -1
        self._generators: dict[tuple[object, ...], ReplayedGenerators] = {}
        self._captured: dict[tuple[object, ...], CapturedStep] = {}
        self._pool: Any = None  # memory that all graphs share: only one graph runs at a time

    def run(self, batch: Batch, roles: frozenset[str]) -> StepResult:
        """Run one step that trains `roles`. Raises UserError where the step cannot be captured."""
        if not self._enabled or type(batch) is not Batch:  # a replay would keep the nested tensors of a subclass
            return self._compute(batch)
        if batch.epoch != self._epoch:
            self._generators, self._captured, self._epoch = {}, {}, batch.epoch
        steps = self._step_counts.get(roles, 0)
        self._step_counts[roles] = steps + 1
        if steps < WARMUP:
            return self._compute(batch)
        key = roles, *(x.shape for x in _get_tensors(batch).values())
        if key not in self._generators:
            return self._record(batch, key)
        if key not in self._captured:
            self._captured[key] = self._capture(batch, self._generators[key])
        self._generators[key].seed(batch.step)
        return self._captured[key].replay(batch)

    def _record(self, batch: Batch, key: tuple[object, ...]) -> StepResult:
        """Run a step directly, and record its generators; disable capturing if the step waits for the GPU."""
        self._generators[key] = generators = ReplayedGenerators()
        with generators.record(), _record_sync_warnings() as step_warnings:
            result = self._compute(batch)
        self._enabled = not any(SYNC_WARNING in str(warning.message) for warning in step_warnings)
        return result

    def _capture(self, batch: Batch, generators: ReplayedGenerators) -> CapturedStep:
        inputs: dict[str, Any] = {name: x.clone() for name, x in _get_tensors(batch).items()} | {"step": None}
        static_batch = replace(batch, **inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in generators.generators:
            graph.register_generator_state(generator)
        generators.seed(batch.step)
        stream = torch.cuda.current_stream()
        gc.collect()  # freeing a graph would end the capture
        try:
            with (
                _disable_garbage_collection(),
                generators.replay(),
                torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
            ):
                result = self._compute(static_batch)
        except (RuntimeError, TypeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"a training step cannot be captured as a CUDA graph: {reason}; set SAYWHICH_CUDA_GRAPHS=0"
            ) from error
        self._pool = graph.pool()
        return CapturedStep(graph, static_batch, result)


@contextmanager
def prepare_gpu_training(device: torch.device) -> Iterator[None]:
    """Prepare a GPU for training in this block: sums have a fixed order, and work is queued on a separate stream.

    By default, some kernels add in the order in which threads finish, so that equal seeds give different bits. PyTorch
    warns of a kernel that has no deterministic form. The default stream cannot be captured.
    """
    if device.type != "cuda":
        yield
        return
    previous_mode = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill_memory = memory.fill_uninitialized_memory
    outer_stream, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(outer_stream)
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # no kernel reads memory before it is written
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        torch.use_deterministic_algorithms(previous_mode[0], warn_only=previous_mode[1])
        memory.fill_uninitialized_memory = fill_memory
        outer_stream.wait_stream(stream)


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
def _record_sync_warnings() -> Iterator[list[warnings.WarningMessage]]:
    previous_mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield caught_warnings
        finally:
            torch.cuda.set_sync_debug_mode(previous_mode)


def _get_tensors(batch: Batch) -> dict[str, Tensor]:
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
