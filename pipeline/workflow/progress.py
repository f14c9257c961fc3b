"""Progress of `make repro`: one line for each stage, with an estimate of the time left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path

from pipeline.errors import UserError
from pipeline.report.result_file import read_result
from pipeline.workflow.grid_cells import CELL_STAGES

DVC_SECONDS = 10.0  # time of DVC itself before and after a stage
CACHED_SHARE = 0.2  # a stage that takes a smaller share of its recorded cost had its outputs in DVC's cache
WORK = {  # work of each stage; {} is the instance of a foreach
    "validate": "check params.yaml",
    "draw": "draw {}, images and captions",
    "prepare": "read the captions, build the vocabulary",
    "features": "train the network of {} where it has no weights, and compute features",
    "pretrain": "pretrain the {}",
    "retriever": "prepare the reward models, where a method has any",
    "train": "train speaker and listener together by {}",
    "adapt": "adapt the listener to the speaker of {}",
    "evaluate": "caption the images by {}, and judge the captions",
    "sweep": "train and evaluate the cells of the grid",
    "cross": "evaluate every listener with every speaker",
    "report": "write tables, figures and the page",
}


def read_recorded_costs(root: Path) -> dict[str, float]:
    """Return seconds by stage, such as features@main or train; {} without a readable record."""
    try:
        table = read_result(root, "costs").table("Cost of each stage")
    except UserError:
        return {}
    if "median, s" not in table.columns:
        return {}
    seconds = table.columns.index("median, s")
    return {row[0]: float(row[seconds].replace(",", "")) for row in table.rows}


def add_grid_cost(costs: Mapping[str, float], cells: int, max_parallel: int) -> dict[str, float]:
    """Return `costs` with the cost of a grid of `cells` cells, each a training, an adaptation and an evaluation.

    The grid runs `max_parallel` cells at a time.
    """
    cell_seconds = sum(costs.get(stage, 0.0) for stage in CELL_STAGES)
    return {**costs, "sweep": cells * cell_seconds / max_parallel}


class Progress:
    """Progress lines of a run's stages, with an estimate of the time left at this machine's speed."""

    def __init__(self, dependencies: Mapping[str, set[str]], costs: Mapping[str, float], max_parallel: int) -> None:
        """Plan the stages that are the keys of `dependencies`, of which at most `max_parallel` run at the same time.

        `dependencies` maps each stage to the stages that it waits for. `costs` are seconds, by stage or by its name
        without the instance.
        """
        stage_costs = {stage: costs.get(stage, costs.get(stage.partition("@")[0], 0.0)) for stage in dependencies}
        self._costs = {stage: cost + DVC_SECONDS if cost else 0.0 for stage, cost in stage_costs.items()}
        self._inputs, self._max_parallel, self._started = dependencies, max_parallel, 0
        self._chains = dict(self._costs)  # seconds of a stage and the longest chain of stages that wait for it
        for stage in reversed(list(TopologicalSorter(dependencies).static_order())):
            for dependency in dependencies[stage]:
                chain = self._costs[dependency] + self._chains[stage]
                self._chains[dependency] = max(self._chains[dependency], chain)
        self._begun: dict[str, float] = {}  # times at which the running stages began, in seconds
        self._done: set[str] = set()
        self._recorded_seconds = self._measured_seconds = 0.0

    def order_by_chain(self, stages: Iterable[str]) -> list[str]:
        """Return the stages by the seconds of the longest chain that begins with each of them, longest first."""
        return sorted(stages, key=lambda stage: -self._chains[stage])

    def begin(self, stage: str, now: float) -> str:
        """Count a stage that begins at the time `now`, in seconds, and return its line."""
        self._started += 1
        self._begun[stage] = now
        count = len(self._costs)
        name, _, instance = stage.partition("@")
        work = WORK.get(name, "").format(instance) or "run"
        return f"[{self._started:>{len(str(count))}}/{count}] {stage}: {work}{self._format_time_left(now)}"

    def end(self, stage: str, now: float) -> None:
        """Record that a stage has ended at the time `now`, in seconds.

        A stage without a recorded cost, or with outputs from DVC's cache, does not count for this machine's speed.
        """
        self._done.add(stage)
        seconds = now - self._begun.pop(stage)
        if (cost := self._costs[stage]) and seconds > CACHED_SHARE * cost:
            self._recorded_seconds += cost
            self._measured_seconds += seconds

    def _format_time_left(self, now: float) -> str:
        """Return the time left as text, "" where no cost is recorded."""
        seconds = self._compute_seconds_left(now)
        if not seconds:
            return ""
        return "; less than a minute left" if seconds < 60 else f"; about {round(seconds / 60)} min left"

    def _compute_seconds_left(self, now: float) -> float:
        """Return the seconds left with at most `max_parallel` stages at the same time.

        Recorded costs are scaled by measured over recorded seconds of the stages that have ended, if
        these recorded seconds exceed 30.
        """
        slowdown = self._measured_seconds / self._recorded_seconds if self._recorded_seconds > 30 else 1.0
        seconds = {stage: cost * slowdown for stage, cost in self._costs.items()}
        seconds |= {stage: max(0.0, seconds[stage] - (now - begun)) for stage, begun in self._begun.items()}
        remaining = {stage: inputs - self._done for stage, inputs in self._inputs.items() if stage not in self._done}
        order = TopologicalSorter(remaining)
        order.prepare()
        passed, ready, running = 0.0, list[str](), list[tuple[float, str]]()
        while order.is_active():
            ready = self.order_by_chain([*ready, *order.get_ready()])
            ready.sort(key=lambda stage: stage not in self._begun)
            while ready and len(running) < self._max_parallel:
                stage = ready.pop(0)
                heappush(running, (passed + seconds[stage], stage))
            passed, stage = heappop(running)
            order.done(stage)
        return passed
