"""Bootstrap: every run's test metrics in resamples of the test images, for intervals and paired differences.

All runs share the same resamples, so differences between two runs are paired. Images that are hard for both runs do not
widen the interval of a difference. The models are fixed, so intervals omit the variation of training. The spread over
seeds shows that variation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.analysis.caption_files import read_rows
from pipeline.analysis.judge_titles import TEXT, Keys
from pipeline.analysis.results import Point, Results, Run
from pipeline.errors import UserError
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.metrics.registry import COUNT_METRICS, MEAN_METRICS

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 1000
BLOCK_COUNTS = 2**24  # maximum number of counts in a block of several resamples; bounds the memory
RECALLS = {"R@1": 1, "R@5": 5, "R@10": 10}

CaptionsKey = tuple[Path, str | None, str | None]  # as Run.captions_key


@dataclass(frozen=True)
class Resamples:
    """Metrics of runs in each of `count` resamples, and over all test captions of a run."""

    count: int
    numbers: Mapping[CaptionsKey, Mapping[Keys, tuple[np.ndarray, float]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def get_values(self, run: Run, *keys: str) -> np.ndarray | None:
        """Return the metric `run.value("test", *keys)` in every resample (count,); None if it cannot be computed.

        Resampled values are shifted by the difference between the value in metrics.json and the value computed from all
        captions. The two differ for METEOR, whose corpus value is not exactly the mean over captions.
        """
        if run.evaluated_with and keys[0] != "judges":
            return None  # the captions file has these scores for the method only
        stored_keys = keys
        if keys[0] == "judges":
            stored_keys = (run.column(HARD_GALLERY if HARD_GALLERY in keys else "rank", keys[1]), *keys[2:])
        numbers, value = self.numbers.get(run.captions_key, {}).get(stored_keys), run.value("test", *keys)
        return None if numbers is None or value is None else numbers[0] + (value - numbers[1])

    def mean(self, points: Sequence[Point], *keys: str) -> np.ndarray | None:
        """Return the points' seed-averaged metrics in every resample (count, points); None if a run lacks them."""
        values = [[self.get_values(run, *keys) for run in point.runs] for point in points]
        if any(each is None for by_run in values for each in by_run):
            return None
        return np.stack([np.mean(np.array(by_run), axis=0) for by_run in values], axis=-1)


def draw_resamples(images: int, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Return the count of each of `images` images in each resample, float64 (resamples, images); rows sum to `images`.

    A counter-based generator gives the same counts on every machine and with every number of threads.
    """
    return np.concatenate([*draw_in_blocks(images, resamples, seed)] or [np.empty((0, images))])


def draw_in_blocks(images: int, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield the rows of `draw_resamples` in blocks, which bounds the memory for any number of resamples.

    A block has at most `BLOCK_COUNTS` counts; a longer row is a block of its own.
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, images]))
    rows = max(1, BLOCK_COUNTS // max(images, 1))
    for first in range(0, resamples, rows):
        count = min(rows, resamples - first)
        indices = generator.integers(images, size=(count, images), dtype=np.int64)
        indices += np.arange(count)[:, None] * images
        yield np.bincount(indices.ravel(), minlength=count * images).reshape(count, images).astype(np.float64)


def resample_means(sums: np.ndarray, counts: np.ndarray, resample_counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means of C columns in each resample (resamples, C), and over all images (C,).

    `sums` (images, C) are each image's sums over its `counts` (images, C) values. `resample_counts` (resamples, images)
    are counts of images, as `draw_resamples` returns them. A resample without any value has the mean 0.
    """
    return resample_counts @ sums / np.maximum(resample_counts @ counts, 1), sums.sum(0) / np.maximum(counts.sum(0), 1)


def compute_bleu_from_counts(counts: np.ndarray) -> np.ndarray:
    """Return BLEU-1 … 4 (…, 4) of summed counts (…, 10), with the constants of pycocoevalcap's BleuScorer.

    The counts are: tokens of the captions, tokens of the closest references, n-grams for n = 1 … 4, matched n-grams for
    n = 1 … 4. Source: Papineni et al. 2002.
    """
    length, reference = counts[..., :1], counts[..., 1:2]
    precisions = (counts[..., 6:] + 1e-15) / (counts[..., 2:6] + 1e-9)
    scores = np.cumprod(precisions, -1) ** (1.0 / np.arange(1, 5))
    ratio = (length + 1e-15) / (reference + 1e-9)
    return scores * np.exp(1 - 1 / np.minimum(ratio, 1.0))


def resample(results: Results, resamples: int = RESAMPLES, seed: int = 0) -> Resamples:
    """Draw test images with replacement and compute every run's recalls and language metrics in each resample.

    A run is left out, with a note, in three cases. Its captions file lacks the column CIDEr or image. The file has no
    test captions of the run. The run's test images differ from the first run's.

    Raises UserError for a captions file that is missing or cannot be read, or whose column bleu lacks counts.
    """
    rank_columns = sorted(
        {column for run in results.runs for judge in results.judges for column in _find_rank_columns(run, judge)}
    )
    captions = {path: _read_scores(path, rank_columns) for path in dict.fromkeys(run.captions for run in results.runs)}
    numbers: dict[CaptionsKey, dict[Keys, tuple[np.ndarray, float]]] = {}
    images, counts = None, np.empty(0)
    omitted: dict[str, list[str]] = {}
    for run in results.runs:
        frame = captions[run.captions].get(run.captions_key)
        if not captions[run.captions]:
            omitted.setdefault("captions.parquet has no scores of single captions", []).append(run.method)
        elif frame is None or frame.empty or (images is not None and not np.array_equal(frame["image"], images)):
            omitted.setdefault("no test captions, or captions of other images than the first run's", []).append(
                run.method
            )
        elif run.captions_key not in numbers:
            if images is None:
                images, counts = frame["image"].to_numpy(), draw_resamples(len(frame), resamples, seed)
            numbers[run.captions_key] = _resample_metrics(run.captions, frame, counts)
    notes = [f"No intervals for {', '.join(dict.fromkeys(names))}: {reason}." for reason, names in omitted.items()]
    return Resamples(resamples, numbers, tuple(notes))


def compute_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the central 95 % interval of resampled `values` (resamples,)."""
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def _find_rank_columns(run: Run, judge: str) -> Iterator[str]:
    """Yield the columns of a judge's ranks of the run's captions and of its baseline captions."""
    yield run.column("rank", judge)
    yield run.column(HARD_GALLERY, judge)
    for name in {keys[2] for keys in run.numbers if keys[1] == "baselines"}:
        yield replace(run, method=name, frozen=None, evaluated_with=run.speaker).column(HARD_GALLERY, judge)


def _read_scores(path: Path, rank_columns: Sequence[str]) -> dict[CaptionsKey, pd.DataFrame]:
    """Return scores and ranks of the file's test captions by method and cell, sorted by image; empty without scores."""
    import pandas as pd

    table = read_rows(
        path, ["image", "method", "cell", "bleu", *MEAN_METRICS, *rank_columns], [("split", "==", "test")]
    )
    if not {"CIDEr", "image"} <= set(table.column_names):
        return {}
    frame = table.to_pandas(types_mapper=pd.ArrowDtype).sort_values("image")
    if "cell" not in frame:
        return {(path, None, None): frame}
    return {(path, *group): rows for group, rows in frame.groupby(["method", "cell"])}


def _resample_metrics(
    path: Path, frame: pd.DataFrame, resample_counts: np.ndarray
) -> dict[Keys, tuple[np.ndarray, float]]:
    """Return the metrics of one run's captions in each resample (resamples,), and over all captions.

    An image that is alone in its hard gallery has rank 0 there and is left out. Raises UserError where a row of column
    bleu lacks ten counts.
    """
    columns: dict[Keys, np.ndarray] = {}
    masks: dict[Keys, np.ndarray] = {}  # for metrics that leave images out: True for the images used
    for name in frame:
        if name in MEAN_METRICS:
            columns["language", name] = frame[name].to_numpy(np.float64, na_value=np.nan)
        elif name.startswith("rank_") and frame[name].notna().all():
            columns |= {(name, TEXT, recall): 100.0 * (frame[name] <= k).to_numpy() for recall, k in RECALLS.items()}
        elif HARD_GALLERY in name:
            ranks = frame[name].fillna(0).to_numpy(np.int64)
            if (ranks > 0).any():
                columns[keys := (name, "galleries", HARD_GALLERY, "R@1")] = 100.0 * (ranks == 1)
                masks[keys] = ranks > 0
    table, ones = np.stack(list(columns.values()), axis=1), np.ones(len(frame))
    counts = np.stack([masks.get(keys, ones) for keys in columns], axis=1)
    resampled, overall = resample_means(table, counts, resample_counts)
    if "bleu" in frame:
        bleu = _read_bleu_counts(path, frame["bleu"])
        columns |= {("language", name): bleu for name in COUNT_METRICS}
        resampled = np.hstack([resampled, compute_bleu_from_counts(resample_counts @ bleu)])
        overall = np.hstack([overall, compute_bleu_from_counts(bleu.sum(0))])
    return {keys: (resampled[:, n], float(overall[n])) for n, keys in enumerate(columns) if np.isfinite(overall[n])}


def _read_bleu_counts(path: Path, column: pd.Series) -> np.ndarray:
    """Return BLEU's counts of each caption, float64 (captions, 10). Raises UserError unless each row has ten."""
    if column.isna().any() or (column.list.len() != 10).any():
        raise UserError(
            f"{path}: expected ten counts in each row of column bleu, found a row with another number or none; "
            "delete the file and run its stage again."
        )
    return column.list.flatten().to_numpy(np.float64).reshape(-1, 10)
