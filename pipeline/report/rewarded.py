"""Captions that a fixed retriever rewarded: what it finds in them, what another judge finds, and how both grew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

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

History = Sequence[Mapping[str, float]]  # an entry an epoch, as training writes them
CURVES = {
    "val/rewarded_recall@10": "By the retriever that rewards",
    "val/recall@10": "By a listener that does not",
    "discriminator/accuracy": "The discriminator is right",
}


def rewarded_table(results: Results, choices: Sequence[Choice], retriever: str, control: str) -> Table | None:
    """Table 1 of WTF-RL, and what only the reward sees; None where `retriever` did not judge.

    That is how much more the R@10 of a method exceeds the control's by the retriever than by the last judge.
    """
    against = next((choice.point for choice in choices if choice.method == control), None)
    judge = results.ends[-1]
    if retriever not in results.judges or judge == retriever or against is None:
        return None

    def gain(point: Point, by: str) -> float | None:
        own, other = (each.mean("test", *recall_by(by)) for each in (point, against))
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
        measured("R@10", recall_by(judge), 1, results.judges[judge].title),
        Column("only the reward sees", show=only),
    ]
    notes = [
        f"Recall in % of {count(results, 'images')} test images by {retriever}, which rewards captions. Only the "
        f"reward sees: gain of R@10, caption → image, over {control} by {retriever}, minus that by {judge}. Self-BLEU: "
        "the lower, the less alike captions of different images are."
    ]
    caption = "Captions rewarded by a fixed retriever, at the chosen settings"
    return filled("rewarded", caption, chosen(choices), columns, notes)


def histories(folders: Iterable[Path]) -> dict[str, History]:
    """The training history of each rewarded method by its name, the folder's; others are left out."""
    found: dict[str, History] = {}
    for folder in folders:
        path = folder / "history.jsonl"
        entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
        if any("val/rewarded_recall@10" in entry for entry in entries):
            found[folder.name] = entries
    return found


def training_panels(results: Results, found: Mapping[str, History]) -> list[Panel]:
    """Both recalls on the validation split and the discriminator's accuracy, in %, against the epochs of training.

    Where the first grows and the second does not, the reward is hacked.
    """
    style = styles(results)
    panels = []
    for key, title in CURVES.items():
        lines = []
        for place, (method, history) in enumerate(found.items()):
            scale = 1.0 if key.startswith("val/") else 100.0
            spots = [
                Spot(
                    entry["epoch"],
                    scale * entry[key],
                    f"{published(method)}, epoch {entry['epoch']:g}: {scale * entry[key]:.1f}",
                )
                for entry in history
                if key in entry
            ]
            lines.append(Series(published(method), style.get(method, Style(place, place)), tuple(spots)))
        up = "R@10, validation split →" if key.startswith("val/") else "share in % →"
        panels.append(Panel(key, title, "epochs of training →", up, tuple(lines)))
    return [panel for panel in panels if not panel.empty]


def training_csv(found: Mapping[str, History]) -> str:
    """The numbers of those panels, CIDEr and both rewards: one line a method and epoch."""
    keys = ["epoch", "step", "val/cider", *CURVES, "discriminability/score", "naturalness/score"]
    rows = [{"method": method, **entry} for method, history in found.items() for entry in history]
    return as_csv(["method", *keys], [{key: row.get(key) for key in ("method", *keys)} for row in rows])
