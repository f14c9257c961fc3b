"""Costs of stages from MLflow's records: time, processor time and peak memory.

python -m pipeline.tracking costs
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline.tracking.recorder import MEMORY, PROCESSOR
from pipeline.tracking.tracker import KEY, PROFILE_KEY, connect

COLUMNS = ("stage", "runs", "median, s", "longest, s", "processor, s", "peak memory, GB", "together, hours")


def format_cost_report() -> str:
    """Return a Markdown table with its caption and a row for each stage of `list_finished_runs`."""
    return f"**Cost of each stage**\n\n{format_cost_table(list_finished_runs())}"


def list_finished_runs() -> Iterator[Mapping[str, Any]]:
    """Yield name, seconds, processor seconds and megabytes of each finished run that reused no other run's outputs.

    Parent runs of profiles, which execute no stage, are omitted.
    """
    tracker = connect()
    token = None
    while True:
        runs = tracker.client.search_runs(
            [tracker.experiment], "attributes.status = 'FINISHED'", max_results=1000, page_token=token
        )
        for run in runs:
            is_parent = run.data.tags.get(KEY, "").startswith(PROFILE_KEY)
            if run.info.end_time and "taken from" not in run.data.tags and not is_parent:
                yield {
                    "name": run.info.run_name,
                    "seconds": (run.info.end_time - run.info.start_time) / 1000,
                    "processor": run.data.metrics.get(PROCESSOR),
                    "megabytes": run.data.metrics.get(MEMORY),
                }
        token = runs.token
        if not token:
            return


def format_cost_table(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return a Markdown table of `runs`, with one row for each stage.

    `pretrain`, `features` and `draw` have one row for each instance, the part of the name after the @.
    """
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        stage, _, instance = re.split(r"\s", run["name"], maxsplit=1)[0].partition("@")
        groups[f"{stage}@{instance}" if stage in ("pretrain", "features", "draw") else stage].append(run)
    rows = [COLUMNS, tuple("---" if n == 0 else "---:" for n in range(len(COLUMNS)))]
    for stage, members in sorted(groups.items()):
        seconds = [run["seconds"] for run in members]
        processor = [run["processor"] for run in members if run["processor"] is not None]
        memory = [run["megabytes"] for run in members if run["megabytes"] is not None]
        rows.append(
            (
                stage,
                str(len(members)),
                f"{statistics.median(seconds):.1f}",
                f"{max(seconds):.1f}",
                f"{statistics.median(processor):.1f}" if processor else "–",
                f"{max(memory) / 1000:.2f}" if memory else "–",
                f"{sum(seconds) / 3600:.2f}",
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
