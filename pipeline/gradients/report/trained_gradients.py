"""Gradient estimators measured on a trained speaker: a table and a figure of the results of `measure_trained`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pipeline.gradients.report.gradient_tables import (
    AXIS_INCLUDES,
    EQUAL_LENGTH_LABEL,
    SYMBOLS,
    choose_estimator_styles,
)
from pipeline.report.plot_elements import PlotPanel, PlotPoint, PlotSeries
from pipeline.report.tables import Table, TableColumn, fill_table, format_number

SIGNIFICANCE = 2.0  # in standard errors; a bias above it differs from 0


def build_trained_table(results: Mapping[str, Any]) -> Table:
    """Return a table with a row per estimator; a bias within two standard errors of 0 is shown as an upper bound."""
    columns = [
        *(TableColumn(symbol, show=partial(_show_setting, key)) for key, symbol in SYMBOLS.items()),
        TableColumn("bias", show=_show_bias),
        TableColumn("cosine", show=lambda row: format_number(row["cosine"], 2)),
        TableColumn("length", show=lambda row: format_number(row["length"], 2)),
        TableColumn("variance", show=lambda row: format_number(row["variance"], 2)),
        TableColumn("ms", show=lambda row: format_number(1000 * row["seconds"], 0)),
    ]
    notes = [
        f"Score: the hinge among images with margin {results['margin']:g}, of {results['images']} fixed images. "
        "Speaker and listener are pretrained, as at the start of joint training; the listener is fixed. The "
        f"reference is the mean gradient of {results['captions']:,} captions by REINFORCE with leave-one-out "
        f"baselines. It is unbiased, and its standard error is {results['error']:.2f} of its norm.",
        "Bias and length (of the mean gradient) are relative to the reference's norm, and the variance of one step to "
        "its square. The sampling errors of both gradients are subtracted. A bias of more than two standard "
        "errors is shown ± its standard error; < marks the sum of any other bias and two standard errors.",
        f"{results['samples']} captions per image, {results['steps']} steps; ms: CPU milliseconds of a step.",
    ]
    rows = [(row["name"], (), row) for row in results["rows"]]
    return fill_table("trained", "Gradient estimators at a trained speaker", rows, columns, notes, "Estimator")


def build_trained_panels(results: Mapping[str, Any]) -> list[PlotPanel]:
    """Return panels of noise against bias, and of the mean's length against its cosine with the reference gradient.

    An estimator without error has bias 0, noise 0, cosine 1 and length 1. The axes are logarithmic beyond 1.
    """
    styles = choose_estimator_styles(row["name"] for row in results["rows"])

    def build_panel(name: str, title: str, x_label: str, y_label: str, x: str, y: str, power: float = 1.0) -> PlotPanel:
        series = []
        for estimator in styles:
            rows = [row for row in results["rows"] if row["name"] == estimator]
            points = [PlotPoint(row[x], row[y] ** power, f"{_describe_row(row)}, {x} {row[x]:.2f}") for row in rows]
            series.append(PlotSeries(estimator, styles[estimator], tuple(points)))
        lines = tuple(series)
        return PlotPanel(
            name,
            title,
            x_label,
            y_label,
            lines,
            band=(1, 1),
            band_label=EQUAL_LENGTH_LABEL,
            includes=AXIS_INCLUDES,
            logarithmic=True,
        )

    bias, noise = "← less bias: |mean − reference| / |reference|", "← less noise: deviation of a step / |reference|"
    cosine, length = "cosine with the reference →", "length: |mean| / |reference|"
    return [
        build_panel("plane", "Noise and bias", bias, noise, "bias", "variance", 0.5),
        build_panel("direction", "The mean gradient", cosine, length, "cosine", "length"),
    ]


def _show_setting(key: str, row: Mapping[str, Any]) -> str | None:
    value = row["settings"].get(key)
    return None if value is None else f"{value:g}"


def _show_bias(row: Mapping[str, Any]) -> str:
    bias, error = row["bias"], row["bias_error"]
    is_clear = bias > SIGNIFICANCE * error
    return (
        f"{format_number(bias, 2)}±{format_number(error, 2)}"
        if is_clear
        else f"<{format_number(bias + SIGNIFICANCE * error, 2)}"
    )


def _describe_row(row: Mapping[str, Any]) -> str:
    return ", ".join([row["name"], *(f"{SYMBOLS[key]} {value:g}" for key, value in row["settings"].items())])
