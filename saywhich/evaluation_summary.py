"""Evaluation results of a trained model: metrics of the test split with intervals, and sample captions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analysis.bootstrap import draw_resamples
from pipeline.analysis.judge_titles import TEXT, get_judge_title
from pipeline.errors import UserError, summarise_error
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.metrics.registry import MEAN_METRICS
from pipeline.runtime.checksums import check_captions, read_checksummed_json

if TYPE_CHECKING:
    import pyarrow as pa

SPLIT = "test"
SAMPLES = 6  # captions shown in a model card


def read_evaluation(folder: Path) -> dict[str, Any]:
    """Return method, settings, protocol signature, number of images, metrics and samples of the evaluation in `folder`.

    Returns {} if there is none. A metric is {name, type, value, low, high}. `low` and `high` are the ends of its 95 %
    interval over 1,000 resamples of the test images. Raises UserError where a file is damaged, and where the test split
    was not evaluated.
    """
    import pyarrow.parquet as pq

    if not (folder / "metrics.json").is_file():
        return {}
    evaluation = read_checksummed_json(folder / "metrics.json", "run the evaluate stage again")
    check_captions(folder / "metrics.json", evaluation)
    if SPLIT not in evaluation:
        raise UserError(
            f"{folder}: has no results of the split {SPLIT}; add it to evaluate.splits and run the evaluate stage again"
        )
    try:
        return _summarise(evaluation, pq.read_table(folder / "captions.parquet"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: is not whole ({summarise_error(error)}); run the evaluate stage again") from None


def _summarise(evaluation: Mapping[str, Any], table: pa.Table) -> dict[str, Any]:
    """Return the result of `read_evaluation` from the content of metrics.json and the table of captions."""
    results = evaluation[SPLIT]
    rows = table.filter(np.array(table["split"].to_pylist()) == SPLIT)
    columns = {name: np.array(rows[name].to_pylist(), float) for name in rows.column_names if _is_numeric_column(name)}
    resamples = draw_resamples(len(rows))
    metrics = [
        _make_metric(name, name.lower(), results["language"][name], columns[name], resamples)
        for name in MEAN_METRICS
        if name in columns and name in results["language"]
    ]
    for judge in results["judges"]:
        title = get_judge_title(judge).title.lower()
        hard_rank, rank = columns.get(f"{HARD_GALLERY}_{judge}"), columns.get(f"rank_{judge}")
        # absent where every image is alone in its hard gallery
        value = results["judges"][judge]["galleries"].get(HARD_GALLERY, {}).get("R@1")
        if hard_rank is not None and value is not None:
            metrics.append(
                _make_metric(
                    f"R@1 (hard), {title}", "recall_at_1", value, 100 * (hard_rank == 1), resamples, hard_rank > 0
                )
            )
        if rank is not None:
            value = results["judges"][judge][TEXT]["R@10"]
            metrics.append(_make_metric(f"R@10, {title}", "recall_at_10", value, 100 * (rank <= 10), resamples))
    sample_rows = np.linspace(0, len(rows) - 1, min(SAMPLES, len(rows))).astype(int)
    samples = [{"file": rows["file"][i].as_py(), "caption": rows["caption"][i].as_py()} for i in sample_rows.tolist()]
    identity = {
        "settings": evaluation.get("settings", {}),
        "signature": evaluation.get("signature", ""),
        "method": evaluation["method"],
    }
    return {**identity, "images": results["images"], "metrics": metrics, "samples": samples}


def _is_numeric_column(name: str) -> bool:
    return name in MEAN_METRICS or name.startswith(("rank_", f"{HARD_GALLERY}_"))


def _make_metric(
    name: str, kind: str, value: float, values: np.ndarray, resamples: np.ndarray, mask: np.ndarray | None = None
) -> Mapping[str, Any]:
    """Return a metric with its bootstrap interval; `values` (N,) are its values on images.

    `value` is the mean of `values` where `mask` (N,) is True; METEOR of a corpus is only close to this mean.
    `resamples` (1,000, N) are the counts of each image in each resample.
    """
    counts = resamples if mask is None else resamples * mask
    means = counts @ values / np.maximum(counts.sum(1), 1)
    mean = values.mean() if mask is None else values[mask].mean()
    # centre on the value: corpus METEOR is not exactly the mean over images
    low, high = np.percentile(means, [2.5, 97.5]) + (value - mean)
    return {"name": name, "type": kind, "value": float(value), "low": float(low), "high": float(high)}
