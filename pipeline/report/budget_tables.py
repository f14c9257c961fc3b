"""Training budgets: a table of steps, captions and processor seconds; learning curves against captions and seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from pipeline.analysis.results import Results
from pipeline.analysis.selection import Choice
from pipeline.report.figures import choose_styles
from pipeline.report.method_names import replace_method_names
from pipeline.report.number_files import format_csv
from pipeline.report.plot_elements import PlotPanel, PlotPoint, PlotSeries
from pipeline.report.table_captions import BUDGET
from pipeline.report.tables import Table, TableColumn, fill_table
from pipeline.report.training_histories import CAPTIONS, CIDER, HARD_LISTENER, LISTENER, SECONDS, STEPS, History

UNKNOWN = "not recorded"
COLUMNS = {STEPS: "steps", CAPTIONS: "captions drawn", SECONDS: "processor seconds"}
NOTES = (
    "Budgets are means over seeds of joint training at the chosen setting. Captions drawn: samples, greedy captions, "
    "beams and continuations that the speaker generates in training. Processor seconds: all threads, without "
    "validations.",
)


def average_budgets(
    choices: Sequence[Choice], trainings: Mapping[str, Sequence[History]]
) -> dict[str, dict[str, float]]:
    """Return each trained method's total budget by quantity: the mean over seeds, where all seeds have the quantity.

    Systems with frozen speakers are omitted.
    """
    trained_choices = (choice for choice in choices if choice.point and choice.point.runs[0].frozen is None)
    return {choice.method: _average_budget(trainings.get(choice.method, ())) for choice in trained_choices}


def build_budget_table(by_method: Mapping[str, Mapping[str, float]]) -> Table | None:
    """Return the table of each method's budget; None where no budget is recorded."""
    columns = [TableColumn(name, show=partial(_format_cell, key)) for key, name in COLUMNS.items()]
    rows: list[tuple[str, Sequence[Any], Mapping[str, float]]] = [
        (name, (), budget) for name, budget in by_method.items()
    ]
    return fill_table("budget", BUDGET, rows, columns, NOTES) if any(by_method.values()) else None


def format_budget_csv(by_method: Mapping[str, Mapping[str, float]]) -> str:
    """Return the CSV of `build_budget_table` with unrounded numbers."""
    rows = [
        {"method": name, **{label: budget.get(key) for key, label in COLUMNS.items()}}
        for name, budget in by_method.items()
    ]
    return format_csv(["method", *COLUMNS.values()], rows)


def build_learning_panels(results: Results, histories: Mapping[str, History]) -> list[PlotPanel]:
    """Return panels of validation recall and CIDEr against captions drawn and against processor seconds.

    Recall is by the trained listener, in the hard gallery if a history has this recall, else among all images.
    """
    k = results.score.partition(" ")[0].removeprefix("R@")
    hard = any(HARD_LISTENER + k in entry for history in histories.values() for entry in history)
    recall = (HARD_LISTENER + k, f"R@{k} (hard)", 1) if hard else (LISTENER + k, f"R@{k}", 1)
    metrics = (recall, (CIDER, "CIDEr", 3))
    quantities = ((CAPTIONS, "captions drawn, in thousands", 1000.0), (SECONDS, "processor seconds", 1.0))
    style, panels = choose_styles(results), []
    for (key, name, digits), (budget, x_label, unit) in product(metrics, quantities):
        lines = []
        for method, history in histories.items():
            label, entries = (
                replace_method_names(method),
                [entry for entry in history if key in entry and budget in entry],
            )
            points = [
                PlotPoint(
                    entry[budget] / unit,
                    entry[key],
                    f"{label}, step {entry[STEPS]:,.0f}, {_format_number(entry[budget])} {COLUMNS[budget]}: "
                    f"{name} {entry[key]:.{digits}f}",
                )
                for entry in entries
            ]
            lines.append(PlotSeries(label, style[method], tuple(points)))
        title = f"{name} against {COLUMNS[budget]}"
        panels.append(PlotPanel(f"{key} {budget}", title, f"{x_label} →", f"{name}, validation split →", tuple(lines)))
    return [panel for panel in panels if not panel.empty]


def _average_budget(trainings: Sequence[History]) -> dict[str, float]:
    """Return the mean over seeds of the last entry's budget; the budget of a training without steps is 0."""
    last_entries = [history[-1] if history else dict.fromkeys(COLUMNS, 0.0) for history in trainings]
    return {
        key: fmean(entry[key] for entry in last_entries)
        for key in COLUMNS
        if last_entries and all(key in entry for entry in last_entries)
    }


def _format_cell(key: str, budget: Mapping[str, float]) -> str:
    return _format_number(budget.get(key))


def _format_number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
