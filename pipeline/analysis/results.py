"""Results of the sweep's cells and the chain's evaluations, grouped into points of each method's curve."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.analysis.judge_titles import (
    HARD_RECALL,
    WHOLE_RECALL,
    JudgeTitle,
    Keys,
    make_recall_keys,
    order_judges,
)
from pipeline.errors import UserError
from pipeline.evaluation.judge_names import ADAPTED, OWN
from pipeline.metrics.registry import TABLE_METRICS
from pipeline.runtime.checksums import check_captions, check_checksums, read_checksummed_json

SYMBOLS = {
    "lambda": "λ",
    "rho": "ρ",
    "gamma": "γ",
    "alpha": "α",
    "rerank": "n",
    "rerank_temperature": "τ",
    "rerank_score": "score",
    "rerank_listener": "listener",
    "pragmatic": "pragmatic α",
}
# settings along which a curve runs where λ does not vary
CURVE_SETTINGS = ("gamma", "alpha", "similarity", "rerank", "pragmatic")
MISSING = "–"
CIDER = ("language", "CIDEr")
LANGUAGE = tuple(TABLE_METRICS)


@dataclass(frozen=True)
class Run:
    """Results of one evaluated model: a cell of the sweep or a single run of the chain."""

    method: str
    settings: Mapping[str, Any]  # lambda, rho, gamma, seed and any other setting of the grid
    signature: str
    numbers: Mapping[Keys, float]  # finite numbers of val and test, by their paths in metrics.json
    not_computed: Mapping[str, str]
    captions: Path  # the captions.parquet that holds this run's captions
    cell: str | None = None  # the cell's name in the sweep's captions
    frozen: str | None = None  # for a frozen-speaker system: the method that generated the captions
    evaluated_with: str | None = None  # for baseline captions: the method that was evaluated with them

    @property
    def speaker(self) -> str:
        """Return the method under whose name the captions file holds this run's captions."""
        return self.frozen or self.evaluated_with or self.method

    def column(self, quantity: str, judge: str) -> str:
        """Return the captions file's column of `quantity` (rank, retrieved, HARD_GALLERY) by `judge`.

        For a frozen speaker, the own listener is the adapted one. Baseline captions have columns of their own.
        """
        name = f"{quantity}_{ADAPTED if self.frozen and judge == OWN else judge}"
        return f"{self.method}_{name}" if self.evaluated_with else name

    def value(self, split: str, *keys: str) -> float | None:
        """Return the number at `keys` of `split`; None if it is missing, null, NaN or infinite."""
        return self.numbers.get((split, *keys))

    @property
    def protocol(self) -> str:
        """Return the signature without guidance, rerank and pragmatic, which are settings of the method."""
        own = ("guidance=", "rerank=", "pragmatic=")
        return "|".join(part for part in self.signature.split("|") if not part.startswith(own))

    @property
    def captions_key(self) -> tuple[Path, str | None, str | None]:
        """Return the key of the run's captions: the file and, for the sweep, the speaker's method and the cell."""
        return self.captions, *((self.speaker, self.cell) if self.cell is not None else (None, None))

    @property
    def point(self) -> tuple[str, ...]:
        """Return the method and its settings except the seed; runs of one point have equal values."""
        return self.method, *(
            f"{key}={_make_sort_key(self.settings[key])}" for key in sorted(self.settings) if key != "seed"
        )


@dataclass(frozen=True)
class Point:
    """Runs of one method with the same settings, one per seed."""

    runs: tuple[Run, ...]

    @property
    def method(self) -> str:
        """Return the method of the runs."""
        return self.runs[0].method

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the settings without the seed."""
        return {key: value for key, value in self.runs[0].settings.items() if key != "seed"}

    @property
    def seeds(self) -> tuple[Any, ...]:
        """Return the seed of each run."""
        return tuple(run.settings.get("seed") for run in self.runs)

    def mean(self, split: str, *keys: str) -> float | None:
        """Return the mean over the seeds; None if any seed lacks the number, so that no seed is dropped silently."""
        values = self._values(split, *keys)
        return statistics.fmean(values) if values else None

    def spread(self, split: str, *keys: str) -> float | None:
        """Return the sample standard deviation over the seeds; None with fewer than two, or if any lacks the number."""
        values = self._values(split, *keys)
        return statistics.stdev(values) if len(values) > 1 else None

    def _values(self, split: str, *keys: str) -> list[float]:
        """Return one number per seed, or an empty list if any is missing."""
        values = [run.value(split, *keys) for run in self.runs]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []


@dataclass(frozen=True)
class Results:
    """All points, with methods in display order, notes for the reader, and the files that were read."""

    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = field(default=(), compare=False)
    # the score that compares methods; None: HARD_RECALL, or WHOLE_RECALL if HARD_RECALL was not measured
    requested_score: str | None = None

    @property
    def runs(self) -> list[Run]:
        """Return the runs of all points."""
        return [run for point in self.points for run in point.runs]

    @cached_property
    def judges(self) -> dict[str, JudgeTitle]:
        """Return the judges by name, in the order of `order_judges`; only the own listener if there is no judge."""
        lists = [dict.fromkeys(keys[2] for keys in run.numbers if keys[1] == "judges") for run in self.runs]
        return order_judges(lists) or order_judges([[OWN]])

    @property
    def first_judge(self) -> JudgeTitle:
        """Return the first judge, which selects settings and defines the curves."""
        return next(iter(self.judges.values()))

    @cached_property
    def score(self) -> str:
        """Return the score that selects settings, defines curves and compares methods."""
        return self.requested_score or (
            HARD_RECALL if self.has(*make_recall_keys(self.first_judge.name, HARD_RECALL)) else WHOLE_RECALL
        )

    @property
    def scores(self) -> list[str]:
        """Return `score` and the recall in the whole split, without duplicates."""
        return list(dict.fromkeys((self.score, WHOLE_RECALL)))

    def score_keys(self, judge: str) -> Keys:
        """Return the path to the score by the judge."""
        return make_recall_keys(judge, self.score)

    @property
    def first_and_last_judge(self) -> list[str]:
        """Return the names of the first and the last judge; params.yaml should list the most independent one last."""
        names = list(self.judges)
        return list(dict.fromkeys((names[0], names[-1])))

    @property
    def methods(self) -> list[str]:
        """Return the names of the methods, each once."""
        return list(dict.fromkeys(point.method for point in self.points))

    def values(self, *keys: str) -> list[float]:
        """Return the numbers at `keys` of the test split, for the runs that have one."""
        return [value for run in self.runs if (value := run.value("test", *keys)) is not None]

    def has(self, *keys: str) -> bool:
        """Return whether any run has a number at `keys` of the test split."""
        return bool(self.values(*keys))

    def curve_setting(self, method: str) -> str:
        """Return the setting along which the method's curve runs: λ, or one of `CURVE_SETTINGS` if λ does not vary.

        The first of `CURVE_SETTINGS` that varies is used. If none varies, the first that the method has is used, or
        λ if the method has none.
        """
        points = self.get_points(method)
        if _count_values(points, "lambda") != 1:
            return "lambda"
        present = [key for key in CURVE_SETTINGS if any(key in point.settings for point in points)]
        varying = [key for key in present if _count_values(points, key) > 1]
        return next(iter([*varying, *present]), "lambda")

    def varying_settings(self, method: str) -> list[str]:
        """Return the method's settings, other than the curve's and the seed, that have several values."""
        points = self.get_points(method)
        keys = sorted({key for point in points for key in point.settings} - {self.curve_setting(method)})
        return [key for key in keys if _count_values(points, key) > 1]

    def get_points(self, method: str) -> list[Point]:
        """Return the points of the method, in the order of its settings."""
        return [point for point in self.points if point.method == method]


def compute_means(points: Iterable[Point], split: str, *keys: str) -> list[float]:
    """Return the points' means at `keys`, for the points that have one."""
    return [value for point in points if (value := point.mean(split, *keys)) is not None]


def format_setting(point: Point | Run | None, name: str) -> str:
    """Return the setting's value as text; a dash if there is none."""
    value = None if point is None else point.settings.get(name)
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_named_setting(point: Point | Run, name: str) -> str:
    """Return the setting's symbol and value, for example "λ 0.01"."""
    return f"{SYMBOLS.get(name, name)} {format_setting(point, name)}"


def read_results(
    sweep: Path, evaluations: Iterable[Path], first: Iterable[str] = (), score: str | None = None
) -> Results:
    """Read sweep/cells.json and each evaluation's metrics.json; the methods named in `first` come first.

    Methods are compared by `score`; None: as `Results.requested_score`. A cell replaces a method's own run with equal
    settings, since both results are of the same training. Raises UserError if a file is missing or malformed, or has
    another method than its folder. Raises UserError, too, if the captions next to it belong to another evaluation, if
    two cells have equal settings, or if no run is found.
    """
    check_checksums(sweep, "delete it and run the sweep stage again")
    cells = sweep / "cells.json"
    entries, paths = read_results_json(cells), [folder / "metrics.json" for folder in evaluations]
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) and "cell" in entry for entry in entries):
        raise UserError(
            f"{cells}: expected a list of cells with their names, found other content; delete it and run the "
            "sweep again."
        )
    swept = [_parse_run(entry, cells, sweep / "captions.parquet", entry["cell"]) for entry in entries]
    single = [_parse_run(_read_evaluation(path), path, path.with_name("captions.parquet")) for path in paths]
    guided_methods = {run.method for run in (*swept, *single) if "gamma" in run.settings}
    runs: dict[tuple[Any, ...], Run] = {}
    for run in (*swept, *single):
        if run.method in guided_methods:  # a run without gamma has no guidance, which is γ = 1
            run = replace(run, settings={"gamma": 1.0, **run.settings})
        equal_run = runs.setdefault((run.point, run.settings.get("seed")), run)
        if equal_run is not run and run.cell is not None:
            raise UserError(
                f"{cells}: expected different settings in all cells of a method, found two cells with equal settings; "
                "remove one of them from sweep.grid and run the sweep again."
            )
    if not runs:
        raise UserError(
            f"{cells}: expected a cell or an evaluation, found none; run the sweep or evaluate a method first."
        )
    order = {method: n for n, method in enumerate(dict.fromkeys((*first, *(run.method for run in runs.values()))))}
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs.values():
        groups.setdefault(run.point, []).append(run)
    points = [
        Point(tuple(sorted(group, key=lambda run: _make_sort_key(run.settings.get("seed")))))
        for group in groups.values()
    ]
    points.sort(
        key=lambda point: (order[point.method], [_make_sort_key(value) for _, value in sorted(point.settings.items())])
    )
    return Results(tuple(points), (), (cells, *paths), score)


def _read_evaluation(path: Path) -> Any:
    """Return the content of an evaluation's metrics.json, after a check of its method and of its captions."""
    entry = read_checksummed_json(path, "run the evaluate stage again")
    if entry.get("method", path.parent.name) != path.parent.name:
        raise UserError(
            f"{path}: expected the method {path.parent.name}, found {entry['method']}; run the evaluate stage again"
        )
    check_captions(path, entry)
    return entry


def find_evaluations(data: Path, methods: Iterable[str]) -> list[Path]:
    """Return the folders of the methods' evaluations below `data` that have a metrics.json."""
    folders = (data / "evaluation" / method for method in methods)
    return [folder for folder in folders if (folder / "metrics.json").exists()]


def add_frozen_speakers(results: Results, methods: Container[str]) -> Results:
    """Return `results` with the system `frozen_…` after each of `methods`: its speaker and a listener adapted to it.

    The system has the captions, settings and language metrics of its method; its own listener is the adapted one. A
    method that was not evaluated is skipped. A setting has no system where a seed lacks the recall of the adapted or
    the own listener; a note then names the system.
    """
    points: list[Point] = []
    incomplete: list[str] = []
    for method in results.methods:
        points += results.get_points(method)
        if method in methods:
            systems = [_build_frozen_point(point) for point in results.get_points(method)]
            points += filter(None, systems)
            incomplete += [f"frozen_{method}"] if None in systems else []
    cause = "settings without the recall of the adapted or own listener are left out"
    note = f"{', '.join(incomplete)}: {cause}; evaluate them again."
    return replace(results, points=tuple(points), notes=(*results.notes, *([note] if incomplete else [])))


def _build_frozen_point(point: Point) -> Point | None:
    """Return the point of the frozen-speaker system; None if a seed lacks the adapted or own listener on test."""
    runs = []
    for run in point.runs:
        if any(run.value("test", *make_recall_keys(judge)) is None for judge in (OWN, ADAPTED)):
            return None
        # the adapted listener replaces the own one
        source = {
            keys: (*keys[:2], ADAPTED, *keys[3:]) if keys[1:3] == ("judges", OWN) else keys for keys in run.numbers
        }
        numbers = {keys: run.numbers[stored] for keys, stored in source.items() if stored in run.numbers}
        runs.append(replace(run, method=f"frozen_{run.method}", frozen=run.method, numbers=numbers))
    return Point(tuple(runs))


def make_human_run(run: Run) -> Run:
    """Return `run` with the metrics of human captions (`human_…`) in place of its own, and no other metrics."""
    numbers = {
        (split, group.removeprefix("human_"), *rest): value
        for (split, group, *rest), value in run.numbers.items()
        if group.startswith("human_")
    }
    return replace(run, method="human", numbers=numbers)


def read_results_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises UserError if it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); delete it and run its stage again.") from None


def _parse_run(entry: Any, path: Path, captions: Path, cell: str | None = None) -> Run:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("method"), str):
        raise UserError(
            f"{path}: expected the name of a method in each entry, found none in one; delete the file and run "
            "its stage again."
        )
    for name in ("val", "test", "settings", "not_computed"):
        if not isinstance(entry.get(name) or {}, Mapping):
            raise UserError(
                f"{path}: expected a JSON object {name} in each entry, found another value; delete the file and "
                "run its stage again."
            )
    splits = {split: entry.get(split) or {} for split in ("val", "test")}
    if any(numbers and not isinstance(numbers.get("judges"), Mapping) for numbers in splits.values()):
        raise UserError(
            f"{path}: expected a JSON object judges in each split, found none, as in files of an older version; delete "
            "the file and run its stage again."
        )
    settings = {key: value for key, value in (entry.get("settings") or {}).items() if value is not None}
    if isinstance(block := settings.get("rerank"), Mapping):
        settings["rerank"] = block.get("samples")  # number of ranked captions
        settings |= {f"rerank_{key}": block[key] for key in ("temperature", "score", "listener") if key in block}
    if isinstance(block := settings.get("pragmatic"), Mapping):
        settings["pragmatic"] = block.get("alpha")
    return Run(
        method=entry["method"],
        settings=settings,
        signature=str(entry.get("signature") or "not recorded"),
        numbers=dict(_flatten(splits)),
        not_computed={str(name): str(reason) for name, reason in (entry.get("not_computed") or {}).items()},
        captions=captions,
        cell=cell,
    )


def _flatten(numbers: Any, *path: str) -> Iterator[tuple[Keys, float]]:
    """Yield all finite numbers of nested mappings, with the keys that lead to them."""
    if isinstance(numbers, Mapping):
        for key, value in numbers.items():
            yield from _flatten(value, *path, key)
    elif isinstance(numbers, int | float) and not isinstance(numbers, bool) and math.isfinite(numbers):
        yield path, float(numbers)


def _count_values(points: Iterable[Point], key: str) -> int:
    """Return the number of different values of the setting; its absence counts as one, and 1 equals 1.0."""
    return len({_make_sort_key(point.settings.get(key)) for point in points})


def _make_sort_key(value: Any) -> tuple[int, float, str]:
    """Return a sort key that places None before numbers and numbers before text."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))
