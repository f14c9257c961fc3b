"""Cross-play of trained agents, from the selected results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline.analysis.caption_files import read_texts
from pipeline.analysis.results import Point, Run
from pipeline.data.prepared import PreparedData
from pipeline.evaluation.cross_play import compute_cross_play
from pipeline.evaluation.judge_names import ADAPTED, OWN
from pipeline.evaluation.judges import (
    JudgeKind,
    JudgeSources,
    build_judges,
    encode_judged_captions,
    load_judge,
)


def measure_cross_play(
    chosen: Mapping[str, Point],
    judges: Mapping[str, str],
    kinds: Sequence[JudgeKind],
    prepared: PreparedData,
    root: Path,
    device: torch.device,
) -> dict[str, Any]:
    """Return R@10 of each chosen method's test captions by every method's listener and by the judges of `judges`.

    `judges` maps a name to a name in `kinds` or to a pretrained role. `own` is omitted, because every method's listener
    ranks images by all captions anyway. The `adapted` listener of a method ranks by that method's captions only. Each
    cell of the matrix is a list with one R@10 per seed that all methods share. Without a shared seed, the list holds
    one R@10, from each method's first run. Raises UserError where a caption or the weights of a judge are missing.
    """
    runs = {method: {run.settings.get("seed"): run for run in point.runs} for method, point in chosen.items()}
    seeds = [seed for seed in next(iter(runs.values()), {}) if all(seed in by_seed for by_seed in runs.values())]
    seed_runs: list[dict[str, Run]] = [{m: by_seed[seed] for m, by_seed in runs.items()} for seed in seeds]
    seed_runs = seed_runs or [{m: next(iter(by_seed.values())) for m, by_seed in runs.items()}]
    rows = prepared.rows("test")
    gallery = torch.from_numpy(rows)
    shared_judges = {name: judge for name, judge in judges.items() if judge not in (OWN, ADAPTED)}
    shared_listeners = build_judges(shared_judges, kinds, JudgeSources(root, root, prepared, device))
    adapted_names = [name for name, judge in judges.items() if judge == ADAPTED]
    listeners = [*shared_listeners, *runs, *adapted_names]
    matrix: list[list[list[float]]] = [[[] for _ in listeners] for _ in runs]
    for by_method in seed_runs:
        captions = {
            method: encode_judged_captions(read_texts(run, rows.tolist()), prepared.vocabulary, prepared.max_words)
            for method, run in by_method.items()
        }
        recalls = compute_cross_play(captions, shared_listeners, gallery)
        for listener, run in by_method.items():
            folder = root / "cells" / run.method / run.cell if run.cell else root / "models" / run.method
            own = compute_cross_play(captions, {listener: load_judge(folder, root, prepared, device)}, gallery)
            adapted = {name: load_judge(folder / "adapted", root, prepared, device) for name in adapted_names}
            for method in by_method:
                recalls[method] |= own[method]
            recalls[listener] |= compute_cross_play({listener: captions[listener]}, adapted, gallery)[listener]
        for row, method in zip(matrix, by_method, strict=True):
            for values, listener in zip(row, listeners, strict=True):
                values.append(recalls[method][listener])
    return {
        "split": "test",
        "recall": "R@10",
        "captions": list(runs),
        "listeners": listeners,
        "seeds": seeds,
        "signature": " / ".join(dict.fromkeys(run.protocol for by_method in seed_runs for run in by_method.values())),
        "matrix": matrix,
    }
