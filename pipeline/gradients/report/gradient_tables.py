"""Results of stages/gradients.py: gradient estimators compared with the exact gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from pipeline.analysis.results import read_results_json
from pipeline.errors import UserError, summarise_error
from pipeline.report.method_names import choose_estimator_colour
from pipeline.report.number_files import format_csv
from pipeline.report.plot_elements import LineStyle, PlotPanel, PlotPoint, PlotSeries, assign_styles
from pipeline.report.tables import Table, TableColumn, fill_table, format_number

if TYPE_CHECKING:
    import pandas as pd

HINGE = "hinge"
CLAIM = "the claim: 1 − ρ"
SYMBOLS = {"rho": "ρ", "temperature": "τ"}
EQUAL_LENGTH_LABEL = "as long as the true gradient"
AXIS_INCLUDES = ((0, 1), (0, 1))  # values that both axes of a panel always include
MEASURED = ("bias", "bias_error", "cosine", "length", "variance")


@dataclass(frozen=True)
class GradientResults:
    """The results of stages/gradients.py; a row is an estimator with its settings, a number of samples and a score.

    Columns: score, name, rho and temperature (NaN without such a setting), samples, exact, worlds (MEASURED of each).
    Further columns: seconds, the means of MEASURED over worlds, ms (CPU milliseconds of a step), and words (the name
    with the settings).
    """

    rows: pd.DataFrame
    effort: Mapping[str, Any]
    margin: float
    large: Mapping[str, int]

    @property
    def samples(self) -> list[int]:
        """Return the numbers of samples, ascending."""
        return sorted(self.rows["samples"].unique().tolist())

    def select_rows(self, samples: int) -> list[dict[str, Any]]:
        """Return the rows with `samples` samples and the hinge as score."""
        return self.rows.query("samples == @samples and score == @HINGE").to_dict("records")

    def order_by_rho(self) -> pd.DataFrame:
        """Return the rows with the fewest samples and a value of ρ, by ascending ρ.

        Bias and variance are multiples of those at the smallest ρ; a multiple of 0 is NaN.
        """
        rows = self.rows[self.rows["rho"].notna() & (self.rows["samples"] == self.samples[0])]
        rows = rows.sort_values("rho", kind="stable")
        first = rows.groupby(["score", "name"])[["bias", "variance"]].transform("first")
        rows[["bias", "variance"]] /= first.where(first != 0)
        return rows


def read_gradients(path: Path) -> GradientResults:
    """Read the results of stages/gradients.py. Raises UserError for an unreadable file or other content."""
    import pandas as pd

    content = read_results_json(path)
    columns = ["score", "name", *SYMBOLS, "samples", "exact", "worlds", "seconds", *MEASURED, "words", "ms"]
    try:
        for row in content["rows"]:
            settings = row.pop("settings")
            row |= {key: mean(world[key] for world in row["worlds"]) for key in MEASURED} | settings
            row["words"] = ", ".join([row["name"], *(f"{SYMBOLS[key]} {value:g}" for key, value in settings.items())])
            row["ms"] = 1000 * row.get("seconds", float("nan"))
        rows = pd.DataFrame(content["rows"], columns=columns)
        return GradientResults(rows, content["effort"], content["margin"], content["large"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path}: expected the results of `python -m stages.gradients`, found other content "
            f"({type(error).__name__}: {summarise_error(error)}); run that command again"
        ) from None


def format_gradients_csv(results: GradientResults) -> str:
    """Return the CSV with a line per estimator, number of samples, score and world, and unrounded numbers."""
    rows = [
        row | {"estimator": row["name"], "world": n, **world}
        for row in results.rows.to_dict("records")
        for n, world in enumerate(row["worlds"], 1)
    ]
    return format_csv(["score", "estimator", *SYMBOLS, "samples", "exact", "world", *MEASURED, "seconds"], rows)


def build_gradients_tables(results: GradientResults) -> list[Table]:
    """Return the accuracy of every estimator and, where ρ was varied, a comparison with PSST's claim."""
    return [
        _build_accuracy_table(results),
        *([_build_claim_table(results)] if results.rows["rho"].notna().any() else []),
    ]


def _build_accuracy_table(results: GradientResults) -> Table:
    rows = results.rows[results.rows["score"] == HINGE]
    costs = {(row.words, row.samples): row.ms * row.variance for row in rows.itertuples()}
    samples = results.samples[len(results.samples) // 2]  # a number that every estimator has
    rows_of_samples = results.select_rows(samples)

    def build_cost_column(k: int) -> TableColumn:
        return TableColumn(f"K={k}", "variance × ms", lambda row: format_number(costs.get((row["words"], k)), 0))

    def show_setting(value: float) -> str | None:
        return None if isnan(value) else f"{value:g}"

    def show_range(row: Mapping[str, Any], key: str) -> str:
        low, high = (format_number(end(world[key] for world in row["worlds"]), 2) for end in (min, max))
        return format_number(row[key], 2) + ("" if len(row["worlds"]) == 1 else f" [{low}, {high}]")

    columns = [
        TableColumn("ρ", show=lambda row: show_setting(row["rho"])),
        TableColumn("τ", show=lambda row: show_setting(row["temperature"])),
        TableColumn("bias", show=lambda row: show_range(row, "bias")),
        TableColumn("cosine", show=lambda row: show_range(row, "cosine")),
        TableColumn("length", show=lambda row: format_number(row["length"], 2)),
        TableColumn("variance", show=lambda row: format_number(row["variance"], 2)),
        TableColumn("ms", show=lambda row: format_number(row["ms"], 1)),
    ]
    columns += map(build_cost_column, results.samples)
    errors = [row["bias_error"] for row in rows_of_samples if not row["exact"]]
    large, effort = results.large, results.effort
    notes = [
        f"Score: the hinge with margin {results.margin:g}, over all captions of two images together; means and ranges "
        f"over {effort['worlds']} worlds with pretrained agents. Bias and length (of the mean) are relative to the "
        "true gradient's norm, variance to its square; a shorter mean also has less variance.",
        f"~ marks sampled estimators: {effort['rounds']} steps, with a standard error of the bias of at most "
        f"{max(errors, default=0.0):.2f}. All others are enumerated.",
        f"ms: CPU milliseconds of a step and its gradient at {large['images']} images, {large['vocabulary']} words and "
        f"captions of up to {large['max_words']}, on this machine. variance × ms: the cost of equal precision.",
    ]
    caption = f"Gradient estimators against the exact gradient, K = {samples} captions per image"
    table_rows = [(row["name"] + ("" if row["exact"] else " ~"), (), row) for row in rows_of_samples]
    return fill_table("gradients", caption, table_rows, columns, notes, "Estimator")


def _build_claim_table(results: GradientResults) -> Table:
    by_rho = results.order_by_rho()
    rhos = sorted(by_rho["rho"].unique())[1:]
    columns = [TableColumn("Estimator", text=True)]
    columns += [TableColumn(f"ρ={rho:g}", key) for key in ("bias", "variance") for rho in rhos]
    rows = [["claimed", *2 * [format_number(1 - rho, 2) for rho in rhos]]]
    for (score, name), line in by_rho.groupby(["score", "name"], sort=False):
        cells = [format_number(multiple, 2) for key in ("bias", "variance") for multiple in line[key][1:]]
        rows.append([name if score == HINGE else f"{name} ({score})", *cells])
    notes = [
        "PSST §5: partial sampling reduces “the overall bias and variance of gradient estimation, by a factor of ρ”. "
        "The table has both as multiples of their values at ρ = 0."
    ]
    return Table("claim", "Effect of ρ on bias and variance, as multiples of those of ρ = 0", columns, rows, notes)


def build_plane_panels(results: GradientResults) -> list[PlotPanel]:
    """Return panels of noise against bias, for the smallest and the largest number of samples.

    Both axes contain 0, where there is no error. At bias 1 the mean is as wrong as a gradient of 0.
    """
    x_label, y_label = "← less bias: |mean − truth| / |truth|", "← less noise: standard deviation / |truth|"
    styles, panels = choose_estimator_styles(results.rows["name"]), []
    for samples in (results.samples[0], results.samples[-1]):
        points: dict[str, list[PlotPoint]] = {name: [] for name in results.rows["name"].unique()}
        for row in results.select_rows(samples):
            x, y = row["bias"], row["variance"] ** 0.5
            label = f"{row['words']}, K {samples}, bias {x:.3f}, noise {y:.3f}, cosine {row['cosine']:.3f}"
            points[row["name"]].append(PlotPoint(x, y, label))
        series = tuple(PlotSeries(name, styles[name], tuple(line)) for name, line in points.items())
        title = f"{samples} caption{'' if samples == 1 else 's'} per image"
        panels.append(
            PlotPanel(
                f"k{samples}",
                title,
                x_label,
                y_label,
                series,
                band=(1, 1),
                band_label=EQUAL_LENGTH_LABEL,
                includes=AXIS_INCLUDES,
            )
        )
    return panels


def build_claim_panels(results: GradientResults) -> list[PlotPanel]:
    """Return bias and variance against ρ, relative to ρ = 0, with the claim that both fall as 1 − ρ."""
    by_rho = results.order_by_rho()
    claimed = [PlotPoint(rho, 1 - rho, f"{CLAIM}, ρ {rho:g}") for rho in sorted(results.rows["rho"].dropna().unique())]
    claim, panels = PlotSeries(CLAIM, LineStyle(0, 0, dashed=True), tuple(claimed)), []
    styles = choose_estimator_styles(results.rows["name"])
    x_label, y_label, subtitle = (
        "ρ: share passed as distributions →",
        "← less than at ρ = 0",
        "as a multiple of the value at ρ = 0",
    )
    for key in ("bias", "variance"):
        rows, series = by_rho[(by_rho["score"] == HINGE) & by_rho[key].notna()], [claim]
        for name, line in rows.groupby("name", sort=False):
            values = zip(line["rho"], line[key], line["words"], strict=True)
            points = [PlotPoint(rho, multiple, f"{label}, {key} × {multiple:.2f}") for rho, multiple, label in values]
            series.append(PlotSeries(name, styles[name], tuple(points)))
        panels.append(
            PlotPanel(
                key, key.capitalize(), x_label, y_label, tuple(series), subtitle, band=(1, 1), includes=AXIS_INCLUDES
            )
        )
    return panels


def choose_estimator_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """Return each estimator's style, with the colour that its method has in all figures."""
    return assign_styles({name: choose_estimator_colour(name) for name in names})
