"""What the observatory measured before a trained speaker: a table and a figure of what `observe_trained` found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pipeline.report.drawing import Panel, Series, Spot
from pipeline.report.gradients import AS_LONG, ENDS, SYMBOLS, estimator_styles
from pipeline.report.tables import Column, Table, filled, number

CLEAR = 2.0  # standard errors


def trained_table(found: Mapping[str, Any]) -> Table:
    """Every estimator; a bias that its error could be is shown as less than what it may be at most."""
    columns = [
        *(Column(sign, show=partial(_dial, key)) for key, sign in SYMBOLS.items()),
        Column("bias", show=_bias),
        Column("cosine", show=lambda row: number(row["cosine"], 2)),
        Column("length", show=lambda row: number(row["length"], 2)),
        Column("variance", show=lambda row: number(row["variance"], 2)),
        Column("ms", show=lambda row: number(1000 * row["seconds"], 0)),
    ]
    notes = [
        f"Score: the hinge among images with margin {found['margin']:g}, of {found['images']} fixed images; the "
        "speaker is the one that joint training begins with, its listener stays as it is. Compared with the gradient "
        f"of {found['captions']:,} captions by REINFORCE with leave-one-out baselines, which is unbiased and whose own "
        f"standard error is {found['error']:.2f} of its norm.",
        "Bias and length (of the mean gradient) are relative to that norm, variance, of one step, to its square; what "
        "sampling adds on either side is subtracted. bias ± its standard error; < where it is not two of them: what it "
        "is at most.",
        f"{found['samples']} captions per image, {found['steps']} steps; ms: CPU milliseconds of a step, here.",
    ]
    rows = [(row["name"], (), row) for row in found["rows"]]
    return filled("trained", "Gradient estimators before a trained speaker", rows, columns, notes, "Estimator")


def trained_panels(found: Mapping[str, Any]) -> list[Panel]:
    """Noise against bias, and the mean's length against its cosine with the gradient.

    Without error are bias 0 and noise 0, cosine 1 and length 1; beyond 1 axes are logarithmic.
    """
    styles = estimator_styles(row["name"] for row in found["rows"])

    def panel(name: str, title: str, across: str, up: str, x: str, y: str, power: float = 1.0) -> Panel:
        series = []
        for called in styles:
            rows = [row for row in found["rows"] if row["name"] == called]
            spots = [Spot(row[x], row[y] ** power, f"{_words(row)}, {x} {row[x]:.2f}") for row in rows]
            series.append(Series(called, styles[called], tuple(spots)))
        lines = tuple(series)
        return Panel(name, title, across, up, lines, "", (1, 1), AS_LONG, shows=ENDS, logarithmic=True)

    bias, noise = "← less bias: |mean − truth| / |truth|", "← less noise: deviation of a step / |truth|"
    same, length = "cosine with the truth →", "length: |mean| / |truth|"
    return [
        panel("plane", "Noise and bias", bias, noise, "bias", "variance", 0.5),
        panel("direction", "The mean gradient", same, length, "cosine", "length"),
    ]


def _dial(key: str, row: Mapping[str, Any]) -> str | None:
    value = row["settings"].get(key)
    return None if value is None else f"{value:g}"


def _bias(row: Mapping[str, Any]) -> str:
    bias, error = row["bias"], row["bias_error"]
    clear = bias > CLEAR * error
    return f"{number(bias, 2)}±{number(error, 2)}" if clear else f"<{number(bias + CLEAR * error, 2)}"


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join([row["name"], *(f"{SYMBOLS[key]} {value:g}" for key, value in row["settings"].items())])
