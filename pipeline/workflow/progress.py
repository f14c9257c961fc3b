"""Progress of `make repro`: one line for each stage, with the time that the rest takes by recorded seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from pathlib import Path

from pipeline.errors import UserError
from pipeline.report.result_file import read_result

DVC_SECONDS = 10.0  # time of DVC itself before and after a stage
CACHED_SHARE = 0.2  # a stage that takes a smaller share of its recorded cost had its outputs in DVC's cache
WORK = {  # work of each stage; {} is the instance of a foreach
    "validate": "check params.yaml",
    "draw": "draw {}, images and captions",
    "prepare": "read the captions, build the vocabulary",
    "features": "train the image network {} where it has no weights, and compute features",
    "pretrain": "pretrain the {}",
    "retriever": "prepare the reward models, where a method has any",
    "train": "train speaker and listener together by {}",
    "adapt": "adapt the listener to the speaker of {}",
    "evaluate": "caption the images by {}, and judge the captions",
    "sweep": "train and evaluate the cells of the grid",
    "cross": "let every listener judge every speaker",
    "report": "write tables, figures and the page",
}


def recorded_costs(root: Path) -> dict[str, float]:
    """Return seconds by stage, such as features@main or train; {} without a readable record."""
    try:
        table = read_result(root, "costs").table("Cost of each stage")
    except UserError:
        return {}
    seconds = table.columns.index("median, s")
    return {row[0]: float(row[seconds].replace(",", "")) for row in table.rows}


def with_grid(costs: Mapping[str, float], cells: int, at_once: int) -> dict[str, float]:
    """Return the costs with that of a grid of `cells` cells, each a training, an adaptation and an evaluation.

    The grid runs `at_once` cells at a time.
    """
    cell = sum(costs.get(stage, 0.0) for stage in ("train", "adapt", "evaluate"))
    return {**costs, "sweep": cells * cell / at_once}


class Progress:
    """Lines on the stages of a run, with an estimate that follows this machine's speed."""

    def __init__(self, waits: Mapping[str, set[str]], costs: Mapping[str, float], at_once: int) -> None:
        """Plan the stages of `waits`, each with its inputs, of which `at_once` run side by side.

        `costs` are seconds, by stage or by its name without the instance.
        """
        known = {stage: costs.get(stage, costs.get(stage.partition("@")[0], 0.0)) for stage in waits}
        self._costs = {stage: cost + DVC_SECONDS if cost else 0.0 for stage, cost in known.items()}
        self._waits, self._at_once, self._started = waits, at_once, 0
        self._chains = dict(self._costs)  # seconds of a stage and the longest chain of stages that wait for it
        for stage in reversed(list(TopologicalSorter(waits).static_order())):
            for needed in waits[stage]:
                chain = self._costs[needed] + self._chains[stage]
                self._chains[needed] = max(self._chains[needed], chain)
        self._done: set[str] = set()
        self._expected = self._took = 0.0

    def order_by_chain(self, stages: Iterable[str]) -> list[str]:
        """Return the stages, those first on which the longest chain of stages waits; the end of a run waits for it."""
        return sorted(stages, key=lambda stage: -self._chains[stage])

    def begin(self, stage: str) -> str:
        """Return the line of a stage that begins."""
        self._started += 1
        count = len(self._costs)
        name, _, instance = stage.partition("@")
        work = WORK.get(name, "").format(instance) or "run"
        return f"[{self._started:>{len(str(count))}}/{count}] {stage}: {work}{self._estimate_left()}"

    def end(self, stage: str, seconds: float) -> None:
        """Record that a stage has ended, `seconds` after it began.

        A stage without a recorded cost, or with outputs from DVC's cache, says nothing about this machine's speed.
        """
        self._done.add(stage)
        if (cost := self._costs[stage]) and seconds > CACHED_SHARE * cost:
            self._expected += cost
            self._took += seconds

    def _estimate_left(self) -> str:
        """Return the time left: that of the stages that have not ended, at the speed of those that have."""
        rest = self._seconds_left()
        if not rest:
            return ""
        speed = self._took / self._expected if self._expected > 30 else 1.0
        seconds = rest * speed
        return "; less than a minute left" if seconds < 60 else f"; about {round(seconds / 60)} min left"

    def _seconds_left(self) -> float:
        """Return the recorded seconds of the stages that have not ended, each begun once its inputs are done."""
        left = {stage: inputs - self._done for stage, inputs in self._waits.items() if stage not in self._done}
        order = TopologicalSorter(left)
        order.prepare()
        now, ready, running = 0.0, list[str](), list[tuple[float, str]]()
        while order.is_active():
            ready = self.order_by_chain([*ready, *order.get_ready()])
            while ready and len(running) < self._at_once:
                stage = ready.pop(0)
                heappush(running, (now + self._costs[stage], stage))
            now, stage = heappop(running)
            order.done(stage)
        return now
