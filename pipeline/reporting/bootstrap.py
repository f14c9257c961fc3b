"""Every run's test numbers in resamples of the test images: what else could have been measured with other images.

The same resamples serve all runs, so that differences between two runs are paired: images that are hard for both do not
widen the interval of a difference. The models stay as they are; what another training would have given is the spread
over seeds, which is no business of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from pipeline.errors import UserError
from pipeline.reporting.results import JUDGES, Results, Run

RESAMPLES = 1000
MEANS = ("CIDEr", "METEOR", "ROUGE-L", "SPICE")  # their corpus values move with the mean over captions
RECALLS = {"R@1": 1, "R@5": 5, "R@10": 10}

T = TypeVar("T")
Keys = tuple[str, ...]
Place = tuple[str, str, str]  # captions file, speaker, cell


@dataclass(frozen=True)
class Resamples:
    """Numbers of runs in each of `count` resamples, and as the captions file has them; `of` gives one run's."""

    count: int
    numbers: Mapping[Place, Mapping[Keys, tuple[np.ndarray, float]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, run: Run, *keys: str) -> np.ndarray | None:
        """The number that `run.value("test", *keys)` is, in every resample (count,); None where it cannot be known.

        Shifted by what lies between metrics.json and the mean over captions: corpus METEOR is not quite that mean.
        """
        wanted = (run.rank_column(keys[0]), *keys[1:]) if keys[0] in JUDGES else keys
        found, measured = self.numbers.get(_place(run), {}).get(wanted), run.value("test", *keys)
        return None if found is None or measured is None else found[0] + (measured - found[1])


def draw(images: int, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """How often each of `images` is in each resample (resamples, images) float64; rows sum to `images`.

    From a counter-based generator: the same numbers on every machine and with every number of threads.
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, images]))
    picked = generator.integers(images, size=(resamples, images), dtype=np.int64)
    picked += np.arange(resamples)[:, None] * images
    return np.bincount(picked.ravel(), minlength=resamples * images).reshape(resamples, images).astype(np.float64)


def bleu(counts: np.ndarray) -> np.ndarray:
    """BLEU-1 … 4 (…, 4) of summed counts (…, 10), as pycocoevalcap's BleuScorer has them (its constants, too).

    Counts: words said, words of the closest reference, n-grams said for n = 1 … 4, n-grams matched for n = 1 … 4.
    """
    said, reference = counts[..., :1], counts[..., 1:2]
    precisions = (counts[..., 6:] + 1e-15) / (counts[..., 2:6] + 1e-9)
    scores = np.cumprod(precisions, -1) ** (1.0 / np.arange(1, 5))
    ratio = (said + 1e-15) / (reference + 1e-9)
    return scores * np.exp(1 - 1 / np.minimum(ratio, 1.0))


def resample(results: Results, resamples: int = RESAMPLES, seed: int = 0) -> Resamples:
    """Draw test images with replacement and compute every run's recalls and language metrics again.

    Runs whose captions have no scores of their own (files of an older version), or other test images than the first
    run's, are left out, and a note says so. Raises UserError for a captions file that is missing or cannot be read.
    """
    files: dict[Path, list[Run]] = {}
    for run in results.runs:
        files.setdefault(run.captions, []).append(run)
    numbers: dict[Place, dict[Keys, tuple[np.ndarray, float]]] = {}
    images: np.ndarray | None = None
    old, other = [], []
    for path, runs in files.items():
        names = _names(path)
        if not {"CIDEr", "image"} <= set(names):
            old += [run.method for run in runs]
            continue
        same: dict[Place, np.ndarray] = {}
        for place, (rows, those) in _rows(path, runs, names).items():
            images = those if images is None else images
            if np.array_equal(those, images):
                same[place] = rows
        other += [run.method for run in runs if _place(run) not in same]
        if same and images is not None:
            table = np.stack(list(same.values()), axis=1)
            for keys, values, measured in _again(path, names, table, draw(len(images), resamples, seed)):
                for column, place in enumerate(same):
                    if np.isfinite(measured[column]):
                        numbers.setdefault(place, {})[keys] = values[:, column], float(measured[column])
    notes = []
    if old:
        notes.append(
            f"No intervals for {_listed(old)}: captions.parquet has no scores of single captions; evaluate again."
        )
    if other:
        notes.append(f"No intervals for {_listed(other)}: captions of other test images than the first run's, or none.")
    return Resamples(resamples, numbers, tuple(notes))


def interval(values: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of resampled `values` (resamples,)."""
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def _again(
    path: Path, names: Iterable[str], rows: np.ndarray, drawn: np.ndarray
) -> Iterable[tuple[Keys, np.ndarray, np.ndarray]]:
    """Keys, values in the resamples (resamples, runs) and as measured (runs,), for `rows` (images, runs) of the file.

    Columns are read one after the other: what is held at once is one column of all runs.
    """
    count = len(rows)
    for name in names:
        if name in MEANS:
            values = _column(path, name)[rows]
            yield ("language", name), drawn @ values / count, values.mean(0)
        elif name.startswith("rank_"):
            ranks = _column(path, name)[rows]
            unknown = np.where(np.isnan(ranks).any(0), np.nan, 1.0)
            for recall, k in RECALLS.items():
                found = 100.0 * (ranks <= k)
                yield (name, "text_to_image", recall), drawn @ found / count, found.mean(0) * unknown
        elif name == "bleu":
            counts = _column(path, name)[rows].astype(np.float64)  # (images, runs, 10)
            sums = np.tensordot(drawn, counts, axes=1)
            scores, measured = bleu(sums), bleu(counts.sum(0))
            for n in range(4):
                yield ("language", f"BLEU-{n + 1}"), scores[..., n], measured[..., n]


def _place(run: Run) -> Place:
    """Where a run's captions lie; a frozen speaker's lie where its method's do."""
    settings = ",".join(f"{key}={run.settings.get(key)}" for key in ("lambda", "rho", "seed"))
    return str(run.captions), run.speaker, run.cell or settings


def _rows(path: Path, runs: list[Run], names: list[str]) -> dict[Place, tuple[np.ndarray, np.ndarray]]:
    """Of each run: its rows among the file's test rows, and their images, by image."""
    image = _column(path, "image")
    in_sweep = runs[0].in_sweep
    written = {name: _codes(path, name) for name in ("method", "cell") if in_sweep and name in names}
    unnamed = in_sweep and any(run.cell is None for run in runs)
    settings = {name: _column(path, name) for name in ("lambda", "rho", "seed") if unnamed}
    found: dict[Place, tuple[np.ndarray, np.ndarray]] = {}
    for run in runs:
        if _place(run) in found:
            continue
        here = np.ones(len(image), dtype=bool)
        for name, wanted in (("method", run.speaker), ("cell", run.cell)):
            if name in written and wanted is not None:
                codes, numbers = written[name]
                here &= codes == numbers.get(wanted, -1)
        if in_sweep and run.cell is None:
            for name, stored in settings.items():
                value = run.settings.get(name)
                here &= np.isnan(stored) if value is None else stored == value
        rows = np.flatnonzero(here)
        if len(rows):
            rows = rows[np.argsort(image[rows], kind="stable")]
            found[_place(run)] = rows, image[rows]
    return found


def _names(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return list(_readable(path, lambda: pq.read_schema(path)).names)


def _column(path: Path, name: str) -> np.ndarray:
    """A column of the test rows as float64, null as NaN; of lists as (rows, length) int32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    filters = [("split", "==", "test")]
    column = _readable(path, lambda: pq.read_table(path, columns=[name], filters=filters))[name].combine_chunks()
    if pa.types.is_list(column.type):
        if column.null_count or len(column.flatten()) != 10 * len(column):
            raise UserError(f"{path}: column {name} has no ten counts in every row; delete it and run its stage again.")
        return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, 10)
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _codes(path: Path, name: str) -> tuple[np.ndarray, dict[str, int]]:
    """A column of names of the test rows as numbers, and which number each name has."""
    import pyarrow.parquet as pq

    filters = [("split", "==", "test")]
    table = _readable(path, lambda: pq.read_table(path, columns=[name], filters=filters))
    column = table[name].combine_chunks().dictionary_encode()
    numbers = {text: n for n, text in enumerate(column.dictionary.to_pylist())}
    return column.indices.fill_null(-1).to_numpy(zero_copy_only=False), numbers


def _readable(path: Path, read: Callable[[], T]) -> T:
    import pyarrow as pa

    try:
        return read()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); delete it and run its stage again.") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
