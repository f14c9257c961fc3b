"""One training run, from its latest checkpoint, if any, to its outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.models.agent_files import Agent, save_agents
from pipeline.runtime import matmul_precision, ranks
from pipeline.runtime.files import write_atomically
from pipeline.runtime.locks import hold_lock
from pipeline.runtime.processor_seconds import FOLDER, format_history, write_processor_seconds
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import Training

if TYPE_CHECKING:
    from pipeline.tracking.recorder import RunRecord


def run_training(
    training: Training,
    out: Path,
    checkpoints: Path,
    record: RunRecord,
    checkpoint_seconds: float,
    roles: frozenset[str] | None = None,
    data: Mapping[str, str] | None = None,
) -> None:
    """Train, and write to `out`: weights.safetensors, history.jsonl (a line per history entry) and metrics.json.

    metrics.json holds the history entry of the kept weights. Processor seconds are written beside the checkpoints
    (`write_processor_seconds`), so that `out` holds equal bytes after equal trainings. `checkpoints` is the folder of
    this run's checkpoints; a checkpoint is written every `checkpoint_seconds` seconds, and all are removed when the
    outputs are on disk.

    `roles` are the roles whose weights are written; None: all. `data` are digests of the data, stored with the weights.
    With several ranks, only rank 0 writes. Raises the errors of `Training.run`.
    """
    training.record = record.log_metrics
    record.set_tags({"matmul_precision": matmul_precision.get_current_precision()})
    checkpoint_store = Checkpoints(checkpoints)
    if ranks.get_rank():
        training.run(checkpoint_store, checkpoint_seconds)
        return
    with hold_lock(checkpoints.with_name(f"{checkpoints.name}.lock"), str(out)):
        history = training.run(checkpoint_store, checkpoint_seconds)
        final_agents = training.method.final_agents().items()
        agents: dict[str, Agent] = {role: agent for role, agent in final_agents if roles is None or role in roles}
        paths = [out / name for name in ("history.jsonl", "weights.safetensors", "metrics.json")]
        write_processor_seconds(checkpoint_store.folder.with_name(FOLDER), history, training.processor_seconds)
        write_atomically(paths[0], format_history(history))
        save_agents(paths[1], agents, paths[0], data)
        write_atomically(paths[2], json.dumps(training.find_kept_entry(), indent=2) + "\n")
        record.log_outputs(paths)
        checkpoint_store.clear()
