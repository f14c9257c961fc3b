"""One training run from its checkpoint, if it has one, to its outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.models.weights import Agent, save_agents
from pipeline.runtime import products, ranks
from pipeline.runtime.files import write_atomically
from pipeline.runtime.locks import alone
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import Training

if TYPE_CHECKING:
    from pipeline.tracking.recorder import Record


def fit(
    training: Training,
    out: Path,
    checkpoints: Path,
    record: Record,
    seconds: float,
    roles: frozenset[str] | None = None,
) -> None:
    """Train, and write `out`: weights.safetensors, history.jsonl (a line an epoch) and metrics.json (its last line).

    `checkpoints` is where a killed run of the same work left them, `seconds` how often one is written; when all
    outputs are on disk they are removed.

    `roles`: whose weights are written; None: everybody's. Of several ranks the first writes.
    """
    training.record = record.metrics
    record.tags({"products": products.chosen()})
    kept = Checkpoints(checkpoints)
    if ranks.rank():
        training.run(kept, seconds)
        return
    with alone(checkpoints.with_name(f"{checkpoints.name}.lock"), str(out)):
        _train_and_write(training, out, kept, record, seconds, roles)


def _train_and_write(
    training: Training, out: Path, kept: Checkpoints, record: Record, seconds: float, roles: frozenset[str] | None
) -> None:
    history = training.run(kept, seconds)
    agents: dict[str, Agent] = {}
    for role, agent in training.method.trained().items():
        assert isinstance(agent, Agent)
        if roles is None or role in roles:
            agents[role] = agent
    paths = [out / name for name in ("history.jsonl", "weights.safetensors", "metrics.json")]
    write_atomically(paths[0], "".join(json.dumps(entry) + "\n" for entry in history))
    save_agents(paths[1], agents, paths[0])
    write_atomically(paths[2], json.dumps(training.result(), indent=2) + "\n")
    record.outputs(paths)
    kept.clear()
