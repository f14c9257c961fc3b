"""What the observatory measured (stages/observatory.py): gradient estimators before the exact gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from pipeline.analysis.results import read_json
from pipeline.report.drawing import Panel, Series, Spot, Style
from pipeline.report.export import as_csv
from pipeline.report.tables import Column, Table, filled, number

HINGE = "hinge"
CLAIM = "the claim: 1 − ρ"
SYMBOLS = {"rho": "ρ", "temperature": "τ"}
MEASURED = ("bias", "bias_error", "cosine", "length", "variance")


@dataclass(frozen=True)
class Observed:
    """An estimator with a number of samples and a score, measured in several worlds."""

    score: str
    name: str
    settings: Mapping[str, float]  # rho, temperature
    samples: int
    exact: bool
    worlds: Sequence[Mapping[str, float]]  # MEASURED of each
    seconds: float | None = None

    def mean(self, key: str) -> float:
        """Over the worlds."""
        return mean(world[key] for world in self.worlds)

    @property
    def ms(self) -> float | None:
        """CPU milliseconds of a step."""
        return None if self.seconds is None else 1000 * self.seconds

    @property
    def words(self) -> str:
        return ", ".join([self.name, *(f"{SYMBOLS[key]} {value:g}" for key, value in self.settings.items())])


@dataclass(frozen=True)
class Observatory:
    """The file of the stage."""

    rows: tuple[Observed, ...]
    effort: Mapping[str, Any]
    margin: float
    large: Mapping[str, int]

    def of(self, samples: int, score: str = HINGE) -> list[Observed]:
        return [row for row in self.rows if (row.samples, row.score) == (samples, score)]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(row.name for row in self.rows))

    @property
    def samples(self) -> list[int]:
        return sorted({row.samples for row in self.rows})

    @property
    def shown(self) -> int:
        """The number of samples that the tables are of: one that every estimator has."""
        return self.samples[len(self.samples) // 2]

    @property
    def rhos(self) -> list[float]:
        return sorted({row.settings["rho"] for row in self.rows if "rho" in row.settings})

    def times(self, key: str) -> dict[tuple[str, str], list[tuple[Observed, float | None]]]:
        """By score and estimator, with the least number of samples: `key` along ρ as multiples of the first one's.

        A multiple of 0 is None.
        """
        lines: dict[tuple[str, str], list[tuple[Observed, float | None]]] = {}
        for row in self.rows:
            if "rho" in row.settings and row.samples == self.samples[0]:
                line = lines.setdefault((row.score, row.name), [])
                first = (line[0][0] if line else row).mean(key)
                line.append((row, row.mean(key) / first if first else None))
        return lines


def read_observatory(path: Path) -> Observatory:
    """Raises UserError for a file that cannot be read."""
    found = read_json(path)
    rows = tuple(Observed(**row) for row in found["rows"])
    return Observatory(rows, found["effort"], found["margin"], found["large"])


def observatory_csv(found: Observatory) -> str:
    """Each estimator, number of samples, score and world as one line, numbers in full."""
    rows = [
        {"score": row.score, "estimator": row.name, **row.settings, "samples": row.samples, "exact": row.exact}
        | {"world": n, **world, "seconds": row.seconds}
        for row in found.rows
        for n, world in enumerate(row.worlds, 1)
    ]
    return as_csv(["score", "estimator", *SYMBOLS, "samples", "exact", "world", *MEASURED, "seconds"], rows)


def observatory_tables(found: Observatory) -> list[Table]:
    """Every estimator before the truth, and, where ρ was varied, what it does against what PSST claims."""
    return [_accuracy_table(found), *([_claim_table(found)] if found.rhos else [])]


def _accuracy_table(found: Observatory) -> Table:
    same = {(row.words, row.samples): row for row in found.rows if row.score == HINGE}

    def ranged(key: str) -> Column:
        def show(row: Observed) -> str:
            low, high = (number(end(world[key] for world in row.worlds), 2) for end in (min, max))
            return number(row.mean(key), 2) + ("" if len(row.worlds) == 1 else f" [{low}, {high}]")

        return Column(key, show=show)

    def cost(samples: int) -> Column:
        def show(row: Observed) -> str | None:
            other = same.get((row.words, samples))
            return number(other.ms * other.mean("variance"), 0) if other and other.ms is not None else None

        return Column(f"K={samples}", "variance × ms", show)

    def dial(key: str) -> Column:
        return Column(SYMBOLS[key], show=lambda row: f"{row.settings[key]:g}" if key in row.settings else None)

    columns = [*map(dial, SYMBOLS), ranged("bias"), ranged("cosine")]
    columns += [Column("length", show=lambda row: number(row.mean("length"), 2))]
    columns += [Column("variance", show=lambda row: number(row.mean("variance"), 2))]
    columns += [Column("ms", show=lambda row: number(row.ms, 1)), *map(cost, found.samples)]
    errors = [row.mean("bias_error") for row in found.of(found.shown) if not row.exact]
    large, effort = found.large, found.effort
    notes = [
        f"Score: the hinge with margin {found.margin:g}, over all captions of two images together; means and ranges "
        f"over {effort['worlds']} taught worlds. Bias and length (of the mean) are relative to the true gradient's "
        "norm, variance to its square; where a mean is shorter, so is its noise.",
        f"~: sampled, {effort['rounds']} steps, the bias's standard error is {max(errors, default=0.0):.2f} at most; "
        "all others are enumerated.",
        f"ms: CPU milliseconds of a step and its gradient at {large['images']} images, {large['vocabulary']} words and "
        f"captions of up to {large['max_words']}, on this machine. variance × ms: what equal precision costs.",
    ]
    caption = f"Gradient estimators before the exact gradient, K = {found.shown} captions per image"
    rows = [(row.name + ("" if row.exact else " ~"), (), row) for row in found.of(found.shown)]
    return filled("observatory", caption, rows, columns, notes, "Estimator")


def _claim_table(found: Observatory) -> Table:
    rhos, bias, variance = found.rhos[1:], found.times("bias"), found.times("variance")
    columns = [Column("Estimator", text=True)]
    columns += [Column(f"ρ={rho:g}", key) for key in ("bias", "variance") for rho in rhos]
    rows = [["claimed", *2 * [number(1 - rho, 2) for rho in rhos]]]
    for score, name in bias:
        cells = [number(times, 2) for lines in (bias, variance) for _, times in lines[score, name][1:]]
        rows.append([name if score == HINGE else f"{name} ({score})", *cells])
    notes = [
        "PSST §5: partial sampling reduces “the overall bias and variance of gradient estimation, by a factor of ρ”. "
        "Here as multiples of those of ρ = 0."
    ]
    return Table("claim", "What ρ does to bias and variance, as multiples of those of ρ = 0", columns, rows, notes)


def plane_panels(found: Observatory) -> list[Panel]:
    """Noise against bias, a panel for the least number of samples and one for the greatest."""
    across, up = "bias: |mean − truth| / |truth| →", "noise: standard deviation / |truth| →"
    panels = []
    for samples in (found.samples[0], found.samples[-1]):
        spots: dict[str, list[Spot]] = {name: [] for name in found.names}
        for row in found.of(samples):
            x, y = row.mean("bias"), row.mean("variance") ** 0.5
            words = f"{row.words}, K {samples}, bias {x:.3f}, noise {y:.3f}, cosine {row.mean('cosine'):.3f}"
            spots[row.name].append(Spot(x, y, words))
        series = [Series(name, _style(found, name), tuple(some)) for name, some in spots.items()]
        title = f"{samples} caption{'' if samples == 1 else 's'} per image"
        panels.append(Panel(f"k{samples}", title, across, up, tuple(series)))
    return panels


def claim_panels(found: Observatory) -> list[Panel]:
    """Bias and variance along ρ as multiples of those at ρ = 0, beside the claim that both fall as 1 − ρ."""
    spots = [Spot(rho, 1 - rho, f"{CLAIM}, ρ {rho:g}") for rho in found.rhos]
    claim, panels = Series(CLAIM, Style(0, 0, dashed=True), tuple(spots)), []
    for key in ("bias", "variance"):
        series = [claim]
        for (score, name), line in found.times(key).items():
            known = [(row, times) for row, times in line if times is not None and score == HINGE]
            spots = [Spot(row.settings["rho"], times, f"{row.words}, {key} × {times:.2f}") for row, times in known]
            series += [Series(name, _style(found, name), tuple(spots))] if spots else []
        across, up, words = "ρ: share that passes whole →", "times that of ρ = 0", "as a multiple of that of ρ = 0"
        panels.append(Panel(key, key.capitalize(), across, up, tuple(series), words))
    return panels


def _style(found: Observatory, name: str) -> Style:
    """A marker a name; a colour a line, and one a family of estimators that are points."""
    lines = {row.name for row in found.rows if row.settings}
    groups = [each if each in lines else each.partition(",")[0] for each in found.names]
    n = found.names.index(name)
    return Style(list(dict.fromkeys(groups)).index(groups[n]) + 1, n)
