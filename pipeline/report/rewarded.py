"""Captions that a fixed retriever rewarded: what it finds in them, what another judge finds, and how both grew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pipeline.analysis.judges import TEXT, recall_by
from pipeline.analysis.results import Point, Results
from pipeline.analysis.selection import Choice
from pipeline.report.caption_tables import count
from pipeline.report.drawing import Panel, Series, Spot, Style
from pipeline.report.export import as_csv
from pipeline.report.figures import styles
from pipeline.report.names import published
from pipeline.report.result_tables import measured_language
from pipeline.report.tables import RECALLS, Column, Table, chosen, filled, measured, number, signed
from pipeline.runtime.seal import check_history

History = Sequence[Mapping[str, float]]  # an entry an epoch, as training writes them
REWARDED, JUDGED, HEARD = "val/rewarded_recall@", "val/judged_recall@", "val/recall@"
CIDER, RIGHT = "val/cider", "discriminator/accuracy"


def rewarded_table(results: Results, choices: Sequence[Choice], retriever: str, control: str) -> Table | None:
    """Table 1 of WTF-RL, and what only the reward sees; None where `retriever` did not judge.

    That is how much more the score of a method exceeds the control's by the retriever than by the last judge.
    """
    against = next((choice.point for choice in choices if choice.method == control), None)
    judge = results.ends[-1]
    if retriever not in results.judges or judge == retriever or against is None:
        return None

    def gain(point: Point, by: str) -> float | None:
        own, other = (each.mean("test", *results.by(by)) for each in (point, against))
        return None if own is None or other is None else own - other

    def only(point: Point) -> str:
        rewarded, judged = gain(point, retriever), gain(point, judge)
        if rewarded is None or judged is None:
            return number(None, 1)
        return signed(f"{rewarded - judged:+.1f}")

    columns = [
        measured(name, recall_by(retriever, name, direction), 1, group)
        for direction, group in ((TEXT, "Caption → image"), ("image_to_text", "Image → caption"))
        for name in RECALLS
    ]
    columns += [measured(name, ("language", name), 3, "Language metrics") for name in measured_language(results)]
    columns += [
        measured("Self-BLEU", ("diversity", "Self-BLEU"), 3, "Diversity"),
        *(measured(f"{results.score} {by}", results.by(by)) for by in (retriever, judge)),
        Column("only the reward sees", show=only),
    ]
    notes = [
        f"Recall in % of {count(results, 'images')} test images by {retriever}, which rewards captions. Only the "
        f"reward sees: gain of {results.score} over {control} by {retriever}, minus that by {judge}. Self-BLEU: "
        "the lower, the less alike captions of different images are."
    ]
    caption = "Captions rewarded by a fixed retriever, at the chosen settings"
    return filled("rewarded", caption, chosen(choices), columns, notes)


def histories(choices: Iterable[Choice], swept: Path, models: Iterable[Path]) -> dict[str, History]:
    """How the chosen setting of each rewarded method was trained, the mean over its seeds, by the method's name.

    `swept` is the file of the histories of all cells, `models` the folders of single runs. Others are left out.
    """
    cells: dict[tuple[str, str], list[dict[str, float]]] = {}
    for entry in _lines(swept):
        cells.setdefault((entry.pop("method"), entry.pop("cell")), []).append(entry)
    single = {folder.name: folder / "history.jsonl" for folder in models}
    found: dict[str, History] = {}
    for choice in choices:
        runs = [run for run in (choice.point.runs if choice.point else ()) if run.frozen is None]
        trained = [
            cells.get((run.method, run.cell), []) if run.cell else _lines(single.get(run.method, Path()))
            for run in runs
        ]
        entries = [_mean(epochs) for epochs in zip(*trained, strict=False)]
        if any(f"{REWARDED}1" in entry for entry in entries):
            found[choice.method] = entries
    return found


def training_panels(results: Results, found: Mapping[str, History]) -> list[Panel]:
    """Recall on the validation split by the retriever and by a judge, against the epochs of training.

    Where the first grows and the second does not, the reward is hacked. Without a judge the second is the listener's.
    """
    k = results.score.partition(" ")[0].removeprefix("R@")
    judged = any(JUDGED + k in entry for history in found.values() for entry in history)
    seen = (JUDGED + k, "By the judge, which does not") if judged else (HEARD + k, "By a listener that does not")
    up, shown = f"R@{k}, validation split →", ((REWARDED + k, "By the retriever that rewards"), seen)
    return _panels(results, found, [(key, title, up, 1.0) for key, title in shown])


def discriminator_panels(results: Results, found: Mapping[str, History]) -> list[Panel]:
    """How often the discriminator is right, in %, against the epochs of training."""
    return _panels(results, found, [(RIGHT, "The discriminator is right", "share of captions in % →", 100.0)])


def training_csv(found: Mapping[str, History]) -> str:
    """The numbers of those panels and both rewards: one line a method and epoch."""
    recalls = [f"{who}{k}" for who in (REWARDED, JUDGED, HEARD) for k in (1, 10)]
    keys = ["epoch", "step", CIDER, *recalls, RIGHT, "discriminability/score", "naturalness/score"]
    rows = [{"method": method, **entry} for method, history in found.items() for entry in history]
    return as_csv(["method", *keys], [{key: row.get(key) for key in ("method", *keys)} for row in rows])


def _panels(
    results: Results, found: Mapping[str, History], shown: Sequence[tuple[str, str, str, float]]
) -> list[Panel]:
    """One panel for each key of the histories, with its title, the words at its axis and what a number is times.

    Of each method that was looked at more than once.
    """
    style, panels = styles(results), []
    for key, title, up, scale in shown:
        lines = []
        for place, (method, history) in enumerate(found.items()):
            known = [(entry["epoch"], scale * entry[key]) for entry in history if key in entry]
            spots = [Spot(epoch, value, f"{published(method)}, epoch {epoch:g}: {value:.1f}") for epoch, value in known]
            if len(spots) > 1:
                lines.append(Series(published(method), style.get(method, Style(place, place)), tuple(spots)))
        panels.append(Panel(key, title, "epochs of training →", up, tuple(lines)))
    return [panel for panel in panels if not panel.empty]


def _lines(path: Path) -> list[dict[str, Any]]:
    check_history(path.with_name("weights.safetensors"))
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def _mean(entries: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of the numbers that all of them have."""
    return {key: fmean(entry[key] for entry in entries) for key in entries[0] if all(key in e for e in entries)}
