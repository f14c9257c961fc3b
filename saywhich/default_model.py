"""Choice of the default model: a repository's trained models, ranked by their recall on the validation split.

A model that was evaluated on the test split alone is ranked by its recall on the test split.

This module must not import PyTorch, whose import takes a second.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.analysis.judge_titles import HARD_RECALL, get_judge_title, make_recall_keys
from pipeline.errors import UserError, escape_line
from pipeline.runtime.checksums import find_changed_input, read_checksummed_json

MODELS = Path("data/models")
SPLITS = ("val", "test")  # the first evaluated split decides


def choose_default_model() -> Path:
    """Return the best trained model (`rank_models`), and name it in a line on stderr.

    Raises UserError where there is no trained model.
    """
    folders = rank_models()
    if not folders:
        raise UserError(f"{MODELS}: no trained model; train one (make repro), or name one with --model")
    best = folders[0]
    judge, recall = _read_hard_recall(best)
    reason = f", the best of {len(folders)}: R@1 (hard) {recall:.1f} by {judge}" if judge and len(folders) > 1 else ""
    print(escape_line(f"model: {best}{reason}"), file=sys.stderr)
    return best


def rank_models() -> list[Path]:
    """Return the trained models in `MODELS`, in the order of their recall in hard galleries, best first.

    The last judge of an evaluation, which is the most independent of the speaker, measures the recall. Models without
    an evaluation come later in the order of their names, and models of another profile's data come last.
    """
    folders = sorted(path.parent for path in MODELS.glob("*/weights.safetensors"))
    data = MODELS.parent
    stale = {path for path in folders if find_changed_input(path / "weights.safetensors", data)}
    return sorted(folders, key=lambda path: (path in stale, -_read_hard_recall(path)[1]))


def _read_hard_recall(model: Path) -> tuple[str, float]:
    """Return the description of the last judge, and R@1 (hard) by it in %; "" and −1 without a readable evaluation."""
    path = model.parent.parent / "evaluation" / model.name / "metrics.json"
    with suppress(UserError, OSError, LookupError, TypeError, ValueError):
        evaluation = read_checksummed_json(path, "run the evaluate stage again")
        entry: Any = next(evaluation[split] for split in SPLITS if evaluation.get(split))
        *_, judge = entry["judges"]
        for key in make_recall_keys(judge, HARD_RECALL):
            entry = entry[key]
        return get_judge_title(judge).description, float(entry)
    return "", -1.0
