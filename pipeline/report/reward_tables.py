"""Tables and figures of reward hacking: recall by the rewarding retriever and by another judge, and training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.analysis.judge_titles import TEXT, make_recall_keys
from pipeline.analysis.results import Point, Results
from pipeline.analysis.selection import Choice
from pipeline.report.caption_tables import format_counts
from pipeline.report.figures import choose_styles
from pipeline.report.method_names import replace_method_names
from pipeline.report.plot_elements import PlotPanel, PlotPoint, PlotSeries
from pipeline.report.result_tables import list_measured_language
from pipeline.report.tables import (
    RECALLS,
    Table,
    TableColumn,
    fill_table,
    format_number,
    format_sign,
    make_chosen_rows,
    make_language_column,
    make_metric_column,
)
from pipeline.report.training_histories import JUDGE_RECALL, LISTENER, REWARD_RECALL, History

ACCURACY = "discriminator/accuracy"


def build_rewarded_table(results: Results, choices: Sequence[Choice], retriever: str, control: str) -> Table | None:
    """Return Table 1 of WTF-RL with the column "excess gain".

    Excess gain is a method's gain over the control by the retriever, minus its gain by the last judge. Returns None
    where `retriever` is no judge or the last judge, and where the control has no chosen setting.
    """
    reference = next((choice.point for choice in choices if choice.method == control), None)
    judge = results.first_and_last_judge[-1]
    if retriever not in results.judges or judge == retriever or reference is None:
        return None

    def compute_gain(point: Point, name: str) -> float | None:
        own, other = (each.mean("test", *results.score_keys(name)) for each in (point, reference))
        return None if own is None or other is None else own - other

    def format_excess_gain(point: Point) -> str:
        rewarded, judged = compute_gain(point, retriever), compute_gain(point, judge)
        if rewarded is None or judged is None:
            return format_number(None, 1)
        return format_sign(f"{rewarded - judged:+.1f}")

    columns = [
        make_metric_column(name, make_recall_keys(retriever, name, direction), 1, group)
        for direction, group in ((TEXT, "Caption → image"), ("image_to_text", "Image → caption"))
        for name in RECALLS
    ]
    columns += [make_language_column(name, "Language metrics") for name in list_measured_language(results)]
    columns += [
        make_metric_column("Self-BLEU", ("diversity", "Self-BLEU"), 3, "Diversity"),
        *(make_metric_column(f"{results.score} {name}", results.score_keys(name)) for name in (retriever, judge)),
        TableColumn("excess gain", show=format_excess_gain),
    ]
    notes = [
        f"Recall in % of {format_counts(results, 'images')} test images by {retriever}, which rewards captions. Excess "
        f"gain: gain of {results.score} over {control} by {retriever}, minus the gain by {judge}. Self-BLEU: "
        "lower values mean more different captions of different images."
    ]
    caption = "Captions rewarded by a fixed retriever, at the chosen settings"
    return fill_table("rewarded", caption, make_chosen_rows(choices), columns, notes)


def select_rewarded_histories(histories: Mapping[str, History]) -> dict[str, History]:
    """Return the histories of methods whose rewards a fixed retriever computes.

    A method that decodes another method's model has the training history of that model, and is omitted.
    """
    rewarded: dict[str, History] = {}
    for name, history in histories.items():
        if any(f"{REWARD_RECALL}1" in entry for entry in history) and history not in rewarded.values():
            rewarded[name] = history
    return rewarded


def build_training_panels(results: Results, histories: Mapping[str, History]) -> list[PlotPanel]:
    """Return panels of validation recall by the retriever and by a judge, against the epochs of training.

    The reward is hacked where recall by the retriever grows and recall by the judge does not. Without a judge, the
    second panel has recall by the listener.
    """
    k = results.score.partition(" ")[0].removeprefix("R@")
    judged = any(JUDGE_RECALL + k in entry for history in histories.values() for entry in history)
    compared = (JUDGE_RECALL + k, "Recall by the judge") if judged else (LISTENER + k, "Recall by the listener")
    y_label, metrics = (
        f"R@{k}, validation split →",
        ((REWARD_RECALL + k, "Recall by the rewarding retriever"), compared),
    )
    return _build_panels(results, histories, [(key, title, y_label, 1.0) for key, title in metrics])


def build_discriminator_panels(results: Results, histories: Mapping[str, History]) -> list[PlotPanel]:
    """Return a panel of the discriminator's accuracy in %, against the epochs of training; [] where it is unknown."""
    metric = (ACCURACY, "Accuracy of the discriminator", "share of captions in % →", 100.0)
    return _build_panels(results, histories, [metric])


def _build_panels(
    results: Results, histories: Mapping[str, History], metrics: Sequence[tuple[str, str, str, float]]
) -> list[PlotPanel]:
    """Return one panel per entry of `metrics`: key in the histories, title, y axis label, and factor of the values.

    Methods with fewer than two values and panels without methods are omitted.
    """
    style, panels = choose_styles(results), []
    for key, title, y_label, scale in metrics:
        lines = []
        for method, history in histories.items():
            known = [(entry["epoch"], scale * entry[key]) for entry in history if key in entry]
            points = [
                PlotPoint(epoch, value, f"{replace_method_names(method)}, epoch {epoch:g}: {value:.1f}")
                for epoch, value in known
            ]
            if len(points) > 1:
                lines.append(PlotSeries(replace_method_names(method), style[method], tuple(points)))
        panels.append(PlotPanel(key, title, "epochs of training →", y_label, tuple(lines)))
    return [panel for panel in panels if not panel.empty]
