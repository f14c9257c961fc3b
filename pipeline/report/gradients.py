"""What the observatory measured (stages/observatory.py): gradient estimators compared with the exact gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from pipeline.analysis.results import read_json
from pipeline.report.drawing import Panel, Series, Spot, Style, styled
from pipeline.report.export import as_csv
from pipeline.report.names import estimator_colour
from pipeline.report.tables import Column, Table, filled, number

if TYPE_CHECKING:
    import pandas as pd

HINGE = "hinge"
CLAIM = "the claim: 1 − ρ"
SYMBOLS = {"rho": "ρ", "temperature": "τ"}
AS_LONG = "as long as the true gradient"
ENDS = ((0, 1), (0, 1))  # what the axes of bias and noise show at least
MEASURED = ("bias", "bias_error", "cosine", "length", "variance")


@dataclass(frozen=True)
class Observatory:
    """The file of the stage; a row is an estimator with its settings, a number of samples and a score.

    Columns: score, name, rho and temperature (NaN where it has none), samples, exact, worlds (MEASURED of each),
    the means over them of MEASURED, ms (CPU milliseconds of a step) and words (the name with the settings).
    """

    rows: pd.DataFrame
    effort: Mapping[str, Any]
    margin: float
    large: Mapping[str, int]

    @property
    def samples(self) -> list[int]:
        """The numbers of samples, ascending."""
        return sorted(self.rows["samples"].unique().tolist())

    def of(self, samples: int) -> list[dict[str, Any]]:
        """The rows with so many samples, by the hinge."""
        return self.rows.query("samples == @samples and score == @HINGE").to_dict("records")

    def along_rho(self) -> pd.DataFrame:
        """The rows with the fewest samples where ρ is set, bias and variance as multiples of those of the smallest ρ.

        A multiple of 0 is NaN.
        """
        rows = self.rows[self.rows["rho"].notna() & (self.rows["samples"] == self.samples[0])].copy()
        first = rows.groupby(["score", "name"])[["bias", "variance"]].transform("first")
        rows[["bias", "variance"]] /= first.where(first != 0)
        return rows


def read_observatory(path: Path) -> Observatory:
    """Raises UserError for a file that cannot be read."""
    import pandas as pd

    found = read_json(path)
    for row in found["rows"]:
        settings = row.pop("settings")
        row |= {key: mean(world[key] for world in row["worlds"]) for key in MEASURED} | settings
        row["words"] = ", ".join([row["name"], *(f"{SYMBOLS[key]} {value:g}" for key, value in settings.items())])
        row["ms"] = 1000 * row.get("seconds", float("nan"))
    columns = ["score", "name", *SYMBOLS, "samples", "exact", "worlds", "seconds", *MEASURED, "words", "ms"]
    return Observatory(pd.DataFrame(found["rows"], columns=columns), found["effort"], found["margin"], found["large"])


def observatory_csv(found: Observatory) -> str:
    """Each estimator, number of samples, score and world as one line, numbers in full."""
    rows = [
        row | {"estimator": row["name"], "world": n, **world}
        for row in found.rows.to_dict("records")
        for n, world in enumerate(row["worlds"], 1)
    ]
    return as_csv(["score", "estimator", *SYMBOLS, "samples", "exact", "world", *MEASURED, "seconds"], rows)


def observatory_tables(found: Observatory) -> list[Table]:
    """The accuracy of every estimator, and, where ρ was varied, what it does compared with what PSST claims."""
    return [_accuracy_table(found), *([_claim_table(found)] if found.rows["rho"].notna().any() else [])]


def _accuracy_table(found: Observatory) -> Table:
    rows = found.rows[found.rows["score"] == HINGE]
    costs = {(row.words, row.samples): row.ms * row.variance for row in rows.itertuples()}
    samples = found.samples[len(found.samples) // 2]  # one that every estimator has
    shown = found.of(samples)

    def cost(k: int) -> Column:
        return Column(f"K={k}", "variance × ms", lambda row: number(costs.get((row["words"], k)), 0))

    def dial(value: float) -> str | None:
        return None if isnan(value) else f"{value:g}"

    def ranged(row: Mapping[str, Any], key: str) -> str:
        low, high = (number(end(world[key] for world in row["worlds"]), 2) for end in (min, max))
        return number(row[key], 2) + ("" if len(row["worlds"]) == 1 else f" [{low}, {high}]")

    columns = [
        Column("ρ", show=lambda row: dial(row["rho"])),
        Column("τ", show=lambda row: dial(row["temperature"])),
        Column("bias", show=lambda row: ranged(row, "bias")),
        Column("cosine", show=lambda row: ranged(row, "cosine")),
        Column("length", show=lambda row: number(row["length"], 2)),
        Column("variance", show=lambda row: number(row["variance"], 2)),
        Column("ms", show=lambda row: number(row["ms"], 1)),
    ]
    columns += map(cost, found.samples)
    errors = [row["bias_error"] for row in shown if not row["exact"]]
    large, effort = found.large, found.effort
    notes = [
        f"Score: the hinge with margin {found.margin:g}, over all captions of two images together; means and ranges "
        f"over {effort['worlds']} worlds with pretrained agents. Bias and length (of the mean) are relative to the "
        "true gradient's norm, variance to its square; a shorter mean also has less variance.",
        f"~: sampled, {effort['rounds']} steps, the bias's standard error is {max(errors, default=0.0):.2f} at most; "
        "all others are enumerated.",
        f"ms: CPU milliseconds of a step and its gradient at {large['images']} images, {large['vocabulary']} words and "
        f"captions of up to {large['max_words']}, on this machine. variance × ms: the cost of equal precision.",
    ]
    caption = f"Gradient estimators before the exact gradient, K = {samples} captions per image"
    named = [(row["name"] + ("" if row["exact"] else " ~"), (), row) for row in shown]
    return filled("observatory", caption, named, columns, notes, "Estimator")


def _claim_table(found: Observatory) -> Table:
    along = found.along_rho()
    rhos = sorted(along["rho"].unique())[1:]
    columns = [Column("Estimator", text=True)]
    columns += [Column(f"ρ={rho:g}", key) for key in ("bias", "variance") for rho in rhos]
    rows = [["claimed", *2 * [number(1 - rho, 2) for rho in rhos]]]
    for (score, name), line in along.groupby(["score", "name"], sort=False):
        cells = [number(times, 2) for key in ("bias", "variance") for times in line[key][1:]]
        rows.append([name if score == HINGE else f"{name} ({score})", *cells])
    notes = [
        "PSST §5: partial sampling reduces “the overall bias and variance of gradient estimation, by a factor of ρ”. "
        "Here as multiples of those of ρ = 0."
    ]
    return Table("claim", "What ρ does to bias and variance, as multiples of those of ρ = 0", columns, rows, notes)


def plane_panels(found: Observatory) -> list[Panel]:
    """Noise against bias, a panel for the smallest number of samples and one for the largest.

    Both axes begin at 0, without error; at bias 1 the mean is as wrong as no gradient at all.
    """
    across, up = "← less bias: |mean − truth| / |truth|", "← less noise: standard deviation / |truth|"
    styles, panels = estimator_styles(found.rows["name"]), []
    for samples in (found.samples[0], found.samples[-1]):
        spots: dict[str, list[Spot]] = {name: [] for name in found.rows["name"].unique()}
        for row in found.of(samples):
            x, y = row["bias"], row["variance"] ** 0.5
            words = f"{row['words']}, K {samples}, bias {x:.3f}, noise {y:.3f}, cosine {row['cosine']:.3f}"
            spots[row["name"]].append(Spot(x, y, words))
        series = tuple(Series(name, styles[name], tuple(some)) for name, some in spots.items())
        title = f"{samples} caption{'' if samples == 1 else 's'} per image"
        panels.append(Panel(f"k{samples}", title, across, up, series, level=(1, 1), level_words=AS_LONG, shows=ENDS))
    return panels


def claim_panels(found: Observatory) -> list[Panel]:
    """Bias and variance along ρ as multiples of those at ρ = 0, with the claim that both fall as 1 − ρ."""
    along = found.along_rho()
    spots = [Spot(rho, 1 - rho, f"{CLAIM}, ρ {rho:g}") for rho in sorted(found.rows["rho"].dropna().unique())]
    claim, panels = Series(CLAIM, Style(0, 0, dashed=True), tuple(spots)), []
    styles = estimator_styles(found.rows["name"])
    across, up, words = "ρ: share passed as distributions →", "← less than at ρ = 0", "as a multiple of that at ρ = 0"
    for key in ("bias", "variance"):
        known, series = along[(along["score"] == HINGE) & along[key].notna()], [claim]
        for name, line in known.groupby("name", sort=False):
            points = zip(line["rho"], line[key], line["words"], strict=True)
            spots = [Spot(rho, times, f"{called}, {key} × {times:.2f}") for rho, times, called in points]
            series.append(Series(name, styles[name], tuple(spots)))
        shown = ((0, 1), (0, 1))
        panels.append(Panel(key, key.capitalize(), across, up, tuple(series), words, level=(1, 1), shows=shown))
    return panels


def estimator_styles(names: Iterable[str]) -> dict[str, Style]:
    """Each estimator's style: the colour that its method has in all figures."""
    return styled({name: estimator_colour(name) for name in names})
