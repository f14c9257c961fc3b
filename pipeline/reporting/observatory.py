"""What the observatory measured (stages/observatory.py), as tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from pipeline.reporting.figures import Panel, Series, Spot, Style
from pipeline.reporting.results import read_json
from pipeline.reporting.tables import MISSING, Column, Table, number

HINGE = "hinge"
PSST = "PSST-Multinomial"
CLAIM = "the claim: 1 − ρ"


@dataclass(frozen=True)
class Observed:
    """An estimator with a number of samples and a score, measured in several worlds."""

    score: str
    name: str
    settings: Mapping[str, float]  # rho, temperature
    samples: int
    exact: bool
    worlds: Sequence[Mapping[str, float]]  # bias, bias_error, cosine, length and variance of each
    seconds: float | None = None

    def mean(self, key: str) -> float:
        """Over the worlds."""
        return mean(world[key] for world in self.worlds)

    def range(self, key: str) -> tuple[float, float]:
        """The least and the greatest of the worlds."""
        values = [world[key] for world in self.worlds]
        return min(values), max(values)

    @property
    def cost(self) -> float | None:
        """Variance times CPU seconds: what it costs to have the variance 1."""
        return None if self.seconds is None else self.mean("variance") * self.seconds


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
    def samples(self) -> list[int]:
        return sorted({row.samples for row in self.rows})

    @property
    def shown(self) -> int:
        """The number of samples that the tables are of: one that every estimator has."""
        return self.samples[len(self.samples) // 2]


def read_observatory(path: Path) -> Observatory:
    """Raises UserError for a file that cannot be read."""
    found = read_json(path)
    return Observatory(
        tuple(Observed(**row) for row in found["rows"]), found["effort"], found["margin"], found["large"]
    )


def observatory_tables(found: Observatory) -> list[Table]:
    """Every estimator before the truth, and, where ρ was varied, what it does against what PSST claims."""
    return [_accuracy_table(found), *([_claim_table(found)] if _along_rho(found) else [])]


def plane_panels(found: Observatory) -> list[Panel]:
    """Noise against bias, a panel for the least number of samples and one for the greatest."""
    panels = []
    for samples in (found.samples[0], found.samples[-1]):
        lines = _lines(found.of(samples))
        series = []
        for n, name in enumerate(_names(found)):
            spots = [_spot(row, row.mean("bias"), row.mean("variance") ** 0.5) for row in lines.get(name, [])]
            series.append(Series(name, _style(found, n), tuple(spots)))
        title = f"{samples} caption{'' if samples == 1 else 's'} an image"
        across, up = "bias: |mean − truth| / |truth| →", "noise: standard deviation / |truth| →"
        panels.append(Panel(f"k{samples}", title, "", across, up, tuple(series)))
    return panels


def claim_panels(found: Observatory) -> list[Panel]:
    """Bias and variance along ρ as multiples of those at ρ = 0, beside the claim that both fall as 1 − ρ."""
    panels = []
    for key in ("bias", "variance"):
        series = [_claim(found)]
        for n, name in enumerate(_names(found)):
            rows = [row for row in found.of(found.samples[0]) if row.name == name and "rho" in row.settings]
            ratios = [(row, _times(row, rows[0], key)) for row in rows]
            spots = tuple(
                _spot(row, row.settings["rho"], ratio, f"{key} × {ratio:.2f}")
                for row, ratio in ratios
                if ratio is not None
            )
            if spots:
                series.append(Series(name, _style(found, n), spots))
        across, up = "ρ: share that passes whole →", "times that of ρ = 0"
        panels.append(Panel(key, key.capitalize(), "as a multiple of that of ρ = 0", across, up, tuple(series)))
    return panels


def _accuracy_table(found: Observatory) -> Table:
    columns = [Column("Estimator", text=True), Column("ρ"), Column("τ")]
    columns += [Column(label) for label in ("bias", "cosine", "length", "variance", "ms")]
    columns += [Column(f"K={samples}", "variance × ms") for samples in found.samples]
    costs = {_key(row): row.cost for row in found.rows if row.score == HINGE}
    rows = []
    for row in found.of(found.shown):
        cells = [row.name if row.exact else f"{row.name} ~"]
        cells += [f"{row.settings[key]:g}" if key in row.settings else MISSING for key in ("rho", "temperature")]
        cells += [_ranged(row, "bias"), _ranged(row, "cosine")]
        cells += [number(row.mean(key), 2) for key in ("length", "variance")]
        cells += [MISSING if row.seconds is None else number(1000 * row.seconds, 1)]
        for samples in found.samples:
            cost = costs.get((*_key(row)[:-1], samples))
            cells.append(MISSING if cost is None else number(1000 * cost, 0))
        rows.append(cells)
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
    caption = f"Gradient estimators before the exact gradient, K = {found.shown} captions an image"
    return Table("observatory", caption, columns, rows, notes)


def _claim_table(found: Observatory) -> Table:
    lines = _along_rho(found)
    rhos = sorted({row.settings["rho"] for line in lines.values() for row in line if row.settings["rho"]})
    columns = [Column("Estimator", text=True)]
    columns += [Column(f"ρ={rho:g}", key) for key in ("bias", "variance") for rho in rhos]
    rows = [["claimed", *(number(1 - rho, 2) for _ in ("bias", "variance") for rho in rhos)]]
    for (score, name), (first, *others) in lines.items():
        cells = [number(_times(row, first, key), 2) for key in ("bias", "variance") for row in others]
        rows.append([name if score == HINGE else f"{name} ({score})", *cells])
    notes = [
        "PSST §5: partial sampling reduces “the overall bias and variance of gradient estimation, by a factor of ρ”. "
        "Here as multiples of those of ρ = 0.",
    ]
    return Table("claim", "What ρ does to bias and variance, as multiples of those of ρ = 0", columns, rows, notes)


def _along_rho(found: Observatory) -> dict[tuple[str, str], list[Observed]]:
    lines: dict[tuple[str, str], list[Observed]] = {}
    for row in found.rows:
        if "rho" in row.settings and row.samples == found.samples[0]:
            lines.setdefault((row.score, row.name), []).append(row)
    return lines


def _times(row: Observed, first: Observed, key: str) -> float | None:
    """`key` as a multiple of that of `first`; None where that is 0."""
    return row.mean(key) / first.mean(key) if first.mean(key) else None


def _claim(found: Observatory) -> Series:
    rhos = sorted({row.settings["rho"] for row in found.rows if "rho" in row.settings})
    spots = [Spot(rho, 1 - rho, None, (), f"{CLAIM}, ρ {rho:g}", "", False) for rho in rhos]
    return Series(CLAIM, Style(0, 0, dashed=True), tuple(spots))


def _names(found: Observatory) -> list[str]:
    return list(dict.fromkeys(row.name for row in found.rows))


def _style(found: Observatory, n: int) -> Style:
    """A marker a name; a colour a line, and one a family of estimators that are points."""
    lines = {row.name for row in found.rows if row.settings}
    names = _names(found)
    groups = [name if name in lines else name.partition(",")[0] for name in names]
    return Style(list(dict.fromkeys(groups)).index(groups[n]) + 1, n)


def _lines(rows: Iterable[Observed]) -> dict[str, list[Observed]]:
    lines: dict[str, list[Observed]] = {}
    for row in rows:
        lines.setdefault(row.name, []).append(row)
    return lines


def _spot(row: Observed, x: float, y: float, values: str | None = None) -> Spot:
    symbols = {"rho": "ρ", "temperature": "τ"}
    words = [row.name, *(f"{symbols[key]} {value:g}" for key, value in row.settings.items())]
    words.append(values or f"K {row.samples}, bias {x:.3f}, noise {y:.3f}, cosine {row.mean('cosine'):.3f}")
    return Spot(x, y, None, (), ", ".join(words), "", False)


def _ranged(row: Observed, key: str) -> str:
    low, high = row.range(key)
    value = number(row.mean(key), 2)
    return value if len(row.worlds) == 1 else f"{value} [{number(low, 2)}, {number(high, 2)}]"


def _key(row: Observed) -> tuple[str, tuple[tuple[str, float], ...], int]:
    return row.name, tuple(row.settings.items()), row.samples
