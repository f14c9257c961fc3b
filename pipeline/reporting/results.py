"""What was measured: the sweep's cells and the chain's evaluations, and points of the curve made of them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.errors import UserError

JUDGES = {
    "own": "the method's own listener",
    "adapted": "the listener before joint training, after learning on this speaker's captions while it stays frozen",
    "before": "the listener before joint training",
    "judge": "an independent judge",
}
SHORT = {
    "own": "Own listener",
    "adapted": "Adapted listener",
    "before": "Listener before",
    "judge": "Independent judge",
}
SYMBOLS = {"lambda": "λ", "rho": "ρ", "gamma": "γ"}
LANGUAGE = ("CIDEr", "BLEU-4", "METEOR", "ROUGE-L", "SPICE")


@dataclass(frozen=True)
class Run:
    """One evaluated model: a cell of the sweep or a single run of the chain."""

    method: str
    settings: Mapping[str, Any]  # lambda, rho, gamma, seed and whatever else the grid varies
    signature: str
    splits: Mapping[str, Any]  # val and test, as metrics.json has them
    not_computed: Mapping[str, str]
    captions: Path  # the captions.parquet that holds this run's captions
    cell: str | None = None  # its name among the sweep's captions
    in_sweep: bool = False
    frozen: str | None = None  # of a frozen-speaker system: the method whose captions these are

    @property
    def speaker(self) -> str:
        """The method under whose name the captions file has this run's captions."""
        return self.frozen or self.method

    def rank_column(self, judge: str) -> str:
        """The captions file's column of ranks by `judge`; a frozen speaker's own listener is the adapted one."""
        return "rank_adapted" if self.frozen and judge == "own" else f"rank_{judge}"

    @property
    def retrieved_column(self) -> str:
        """The captions file's column of images that the own listener puts first."""
        return "retrieved_adapted" if self.frozen else "retrieved_own"

    def value(self, split: str, *keys: str) -> float | None:
        """The number at `keys` of `split`; None where it is missing, null, NaN or infinite."""
        found: Any = self.splits.get(split)
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            return None
        return float(found)

    @property
    def protocol(self) -> str:
        """The signature without what guides the captions: gamma is a setting of the method."""
        return "|".join(part for part in self.signature.split("|") if not part.startswith("guidance="))

    @property
    def point(self) -> tuple[str, ...]:
        """What runs that differ by their seed alone have in common."""
        return self.method, *(f"{key}={_rank(self.settings[key])}" for key in sorted(self.settings) if key != "seed")


@dataclass(frozen=True)
class Point:
    """The runs of one method with the same settings, one a seed."""

    runs: tuple[Run, ...]

    @property
    def method(self) -> str:
        return self.runs[0].method

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings without the seed."""
        return {key: value for key, value in self.runs[0].settings.items() if key != "seed"}

    @property
    def seeds(self) -> tuple[Any, ...]:
        return tuple(run.settings.get("seed") for run in self.runs)

    def mean(self, split: str, *keys: str) -> float | None:
        """Mean over the seeds; None if any seed lacks the number, so that no seed drops out unseen."""
        values = self._values(split, *keys)
        return statistics.fmean(values) if values else None

    def spread(self, split: str, *keys: str) -> float | None:
        """Sample standard deviation over the seeds; None with fewer than two."""
        values = self._values(split, *keys)
        return statistics.stdev(values) if len(values) > 1 else None

    def _values(self, split: str, *keys: str) -> list[float]:
        """One number a seed, or nothing."""
        values = [run.value(split, *keys) for run in self.runs]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []


@dataclass(frozen=True)
class Results:
    """All points, methods in the order in which they are shown, and what a reader should know about them."""

    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = field(default=(), compare=False)

    @property
    def runs(self) -> list[Run]:
        return [run for point in self.points for run in point.runs]

    @property
    def judges(self) -> dict[str, str]:
        """Who judged, in the order in which they are shown, in words; the adapted listener only where it was made."""
        adapted = any("adapted" in numbers for run in self.runs for numbers in run.splits.values())
        return {judge: words for judge, words in JUDGES.items() if judge != "adapted" or adapted}

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(point.method for point in self.points))

    def dial(self, method: str) -> str:
        """The setting along which the method's curve runs: λ, or γ of a guided method that has one λ."""
        points = self.of(method)
        guided = any("gamma" in point.settings for point in points)
        return "gamma" if guided and len({point.settings.get("lambda") for point in points}) == 1 else "lambda"

    def varying(self, method: str) -> list[str]:
        """The method's settings besides its dial and the seed that have several values."""
        points = self.of(method)
        keys = sorted({key for point in points for key in point.settings} - {self.dial(method)})
        return [key for key in keys if len({str(point.settings.get(key)) for point in points}) > 1]

    def of(self, method: str) -> list[Point]:
        return [point for point in self.points if point.method == method]


def read_results(sweep: Path, evaluations: Iterable[Path], first: Iterable[str] = ()) -> Results:
    """Read sweep/cells.json and each evaluation's metrics.json; the methods named in `first` come first.

    A chain's run with the settings of a cell is left out (the same stage made both); if its numbers differ from the
    cell's, a note says so. Raises UserError if a file is missing or not of the form that the evaluate stage writes.
    """
    cells, notes = sweep / "cells.json", []
    paths = [folder / "metrics.json" for folder in evaluations]
    swept = [_run(entry, cells, sweep / "captions.parquet", in_sweep=True) for entry in _list(_read(cells), cells)]
    single = [_run(_read(path), path, path.with_name("captions.parquet"), in_sweep=False) for path in paths]
    guided = {run.method for run in (*swept, *single) if "gamma" in run.settings}
    runs, chain = _with_gamma(swept, guided), _with_gamma(single, guided)
    known = {(run.point, run.settings.get("seed")): run for run in runs}
    if len(known) < len(runs):
        raise UserError(
            f"{cells}: two cells of one method have the same settings; delete data/sweep and repeat the sweep."
        )
    for run in chain:
        twin = known.get((run.point, run.settings.get("seed")))
        if twin is None:
            known[run.point, run.settings.get("seed")] = run
            runs.append(run)
        elif not _same(twin.splits, run.splits):
            notes.append(
                f"{run.method}: the single run and the sweep's cell with the same settings have different numbers."
            )
    if not runs:
        raise UserError(f"{cells}: no cell, and no evaluation beside it; run the sweep or evaluate a method first.")
    order = {method: n for n, method in enumerate(dict.fromkeys((*first, *(run.method for run in runs))))}
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(run.point, []).append(run)
    points = [Point(tuple(sorted(group, key=lambda run: _rank(run.settings.get("seed"))))) for group in groups.values()]
    points.sort(key=lambda point: (order[point.method], [_rank(value) for _, value in sorted(point.settings.items())]))
    return Results(tuple(points), tuple(notes), (cells, *paths))


def _same(left: Any, right: Any) -> bool:
    """Whether numbers below the same names are the same, up to what the order of a sum on several threads does."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(value, right[name]) for name, value in left.items())
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-9)
    return bool(left == right)


def _with_gamma(runs: Iterable[Run], guided: Container[str]) -> list[Run]:
    """`runs`; those of methods that are `guided` in some of their runs say of the others, too, that γ = 1 is none."""
    return [replace(run, settings={"gamma": 1.0, **run.settings}) if run.method in guided else run for run in runs]


def with_frozen_speakers(results: Results, methods: Iterable[str]) -> Results:
    """`results` and, behind each of `methods`, the system `frozen_…`: its speaker, and a listener that adapted to it.

    The system has the captions, settings and language of its method; its own listener is the adapted one. A method
    that was not evaluated is passed over; one without an adapted listener has no system, and a note says so.
    """
    wanted = [method for method in dict.fromkeys(methods) if method in results.methods]
    points: list[Point] = []
    lacking: list[str] = []
    for method in results.methods:
        points += results.of(method)
        if method not in wanted:
            continue
        systems = [_frozen(point) for point in results.of(method)]
        points += [system for system in systems if system is not None]
        if None in systems:
            lacking.append(method)
    notes = results.notes
    if lacking:
        names = ", ".join(f"frozen_{method}" for method in lacking)
        notes = (*notes, f"{names}: settings without an adapted listener are left out; evaluate them again.")
    return replace(results, points=tuple(points), notes=notes)


def _frozen(point: Point) -> Point | None:
    """The point of the frozen-speaker system; None if a seed has no adapted listener on the test split."""
    if any(run.value("test", "adapted", "text_to_image", "R@10") is None for run in point.runs):
        return None
    return Point(
        tuple(
            replace(
                run,
                method=f"frozen_{run.method}",
                frozen=run.method,
                splits={split: _owned(numbers) for split, numbers in run.splits.items()},
            )
            for run in point.runs
        )
    )


def _owned(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a split with the adapted listener in the place of the own one."""
    owned = {key: value for key, value in numbers.items() if key != "own"}
    if "adapted" in numbers:
        owned["own"] = numbers["adapted"]
    for section in ("human", "galleries"):
        if isinstance(numbers.get(section), Mapping):
            owned[section] = _owned(numbers[section])
    return owned


def read_json(path: Path) -> Any:
    """The content of a JSON file, or UserError."""
    return _read(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); delete it and run its stage again.") from None


def _list(content: Any, path: Path) -> list[Any]:
    if not isinstance(content, list):
        raise UserError(f"{path}: expected a list of cells; delete it and run the sweep again.")
    return content


def _run(entry: Any, path: Path, captions: Path, in_sweep: bool) -> Run:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("method"), str):
        raise UserError(f"{path}: an entry without a method; delete the file and run its stage again.")
    settings = {key: value for key, value in (entry.get("settings") or {}).items() if value is not None}
    return Run(
        method=entry["method"],
        settings=settings,
        signature=str(entry.get("signature") or "not recorded"),
        splits={split: entry.get(split) or {} for split in ("val", "test")},
        not_computed={str(name): str(reason) for name, reason in (entry.get("not_computed") or {}).items()},
        captions=captions,
        cell=entry.get("cell"),
        in_sweep=in_sweep,
    )


def _rank(value: Any) -> tuple[int, float, str]:
    """Sorts numbers before words and None before both."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))
