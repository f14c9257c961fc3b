"""Training histories of the chosen settings, with recorded processor seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pipeline.analysis.selection import Choice
from pipeline.errors import UserError, summarise_error
from pipeline.report.number_files import format_csv
from pipeline.runtime.checksums import check_history
from pipeline.runtime.processor_seconds import read_processor_seconds

History = Sequence[Mapping[str, float]]  # entries as training records them, by key
REWARD_RECALL, JUDGE_RECALL, LISTENER = "val/rewarded_recall@", "val/judged_recall@", "val/recall@"
HARD_LISTENER, CIDER = "val/hard_recall@", "val/cider"
STEPS, CAPTIONS, SECONDS = "step", "captions_drawn", "processor_seconds"


def read_training_histories(
    choices: Iterable[Choice], cells_file: Path, models: Iterable[Path], seconds: Path | None
) -> dict[str, list[History]]:
    """Return the training histories of each method's chosen setting by method, one per seed.

    `cells_file` holds the histories of all cells, and `models` are the folders of single runs. `seconds` is the folder
    of processor seconds, which are added to the entries. A method is omitted where its speaker is frozen or a seed has
    no history. Raises UserError for a damaged file.
    """
    cells: dict[tuple[str, str], list[dict[str, float]]] = {}
    for entry in _read_entries(cells_file) or []:
        cells.setdefault((entry.pop("method"), entry.pop("cell")), []).append(entry)
    single_runs = {folder.name: _read_entries(folder / "history.jsonl") for folder in models}
    histories: dict[str, list[History]] = {}
    for choice in choices:
        runs = [run for run in (choice.point.runs if choice.point else ()) if run.frozen is None]
        by_seed = [cells.get((run.method, run.cell)) if run.cell else single_runs.get(run.method) for run in runs]
        known = [history for history in by_seed if history is not None]
        if known and len(known) == len(by_seed):
            histories[choice.method] = [_add_seconds(history, seconds) for history in known]
    return histories


def average_histories(runs: Sequence[History]) -> History:
    """Return the mean over seeds of each value that all seeds have, entry by entry.

    The mean history ends where the shortest history ends.
    """
    return [_average_entries(entries) for entries in zip(*runs, strict=False)]


def format_training_csv(histories: Mapping[str, History]) -> str:
    """Return the CSV of budgets, validation metrics and rewards: one line per method and entry."""
    recalls = [f"{prefix}{k}" for prefix in (REWARD_RECALL, JUDGE_RECALL, LISTENER) for k in (1, 10)]
    keys = ["epoch", STEPS, CAPTIONS, SECONDS, CIDER, f"{HARD_LISTENER}1", *recalls]
    keys += ["discriminator/accuracy", "discriminability/score", "naturalness/score"]
    rows = [{"method": method, **entry} for method, history in histories.items() for entry in history]
    return format_csv(["method", *keys], [{key: row.get(key) for key in ("method", *keys)} for row in rows])


def _read_entries(path: Path) -> list[dict[str, Any]] | None:
    """Return the entries of a file of histories; None where there is no file.

    Raises UserError for a damaged file, and where the weights beside it are from another training.
    """
    check_history(path.with_name("weights.safetensors"))
    try:
        lines = path.read_text("utf-8").splitlines() if path.is_file() else None
        return None if lines is None else [dict(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path}: a line is no JSON object ({summarise_error(error)}); run again the stage that writes it"
        ) from None


def _add_seconds(history: History, folder: Path | None) -> History:
    if folder is None or (seconds := read_processor_seconds(folder, history)) is None:
        return history
    return [{**entry, SECONDS: value} for entry, value in zip(history, seconds, strict=True)]


def _average_entries(entries: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each value that all entries have."""
    return {key: fmean(entry[key] for entry in entries) for key in entries[0] if all(key in e for e in entries)}
