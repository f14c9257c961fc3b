"""Tables beside the trade-off: smaller galleries, faithfulness, diversity, the listener's drift, crossed listeners."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import UserError
from pipeline.reporting.results import Point, Results
from pipeline.reporting.selection import Choice
from pipeline.reporting.tables import MISSING, Column, Protocols, Table, chosen_name, number, point_cell

GALLERIES = {"1000": "1,000 images", "random100": "100 random images", "similar100": "100 similar images"}
DIVERSITY = {
    "words_per_caption": ("words", 1),
    "words_used": ("vocabulary", 0),
    "distinct_captions": ("distinct", 3),
    "Div-1": ("Div-1", 3),
    "Div-2": ("Div-2", 3),
    "Self-BLEU": ("Self-BLEU", 3),
    "repetition": ("repeats", 3),
    "unfinished": ("no end", 3),
    "human_log_likelihood": ("log p", 3),
}
EXPLAINED = {
    "Self-BLEU": "Self-BLEU: BLEU-5 of each of the first 1,000 captions against the others; lower is more varied.",
    "human_log_likelihood": "log p: the speaker's, of a word of people's captions.",
}


def galleries_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """R@1 and R@10 by each judge in the whole test split and in smaller galleries; None where none was measured."""
    points = _points(choices)
    sizes = [size for size in GALLERIES if _measured(points, "galleries", "own", size, "R@10")]
    if not sizes:
        return None
    judges = [judge for judge in results.judges if judge != "adapted"]
    columns = [Column("Method", text=True)]
    columns += [
        Column(f"{recall} {judge}", group)
        for group in ("Whole split", *(GALLERIES[size] for size in sizes))
        for judge in judges
        for recall in ("R@1", "R@10")
    ]
    rows, protocols = [], _protocols(points)
    for choice in choices:
        row = [chosen_name(choice, protocols)]
        for place in ((), *(("galleries", size) for size in sizes)):
            for judge in judges:
                keys = (place[0], judge, place[1]) if place else (judge, "text_to_image")
                row += [point_cell(choice.point, 1, *keys, recall) for recall in ("R@1", "R@10")]
        rows.append(row)
    return Table(
        "galleries",
        "The same captions in smaller galleries: recall in %, test split, from caption to image",
        columns,
        rows,
        [
            "Judges: "
            + "; ".join(f"{judge}: {results.judges[judge]}" for judge in judges)
            + ". Similar images: those nearest to the right one.",
            *protocols.notes,
        ],
        protocols.warning,
    )


def faithfulness_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """How much of what captions claim is true, and how much of what there is they tell; None without known facts."""
    points = _points(choices)
    if not _measured(points, "faithfulness", "precision"):
        return None
    kinds = list(
        dict.fromkeys(
            kind
            for point in points
            for run in point.runs
            for kind in ((run.splits.get("test") or {}).get("faithfulness") or {}).get("by_kind") or {}
        )
    )
    columns = [Column("Method", text=True), *(Column(name, "All facts") for name in ("true", "told", "claims"))]
    columns += [Column(name, kind.capitalize()) for kind in kinds for name in ("true", "told")]
    rows, protocols = [], _protocols(points)
    for choice in choices:
        row = [chosen_name(choice, protocols)]
        row += [point_cell(choice.point, 3, "faithfulness", key) for key in ("precision", "told")]
        row += [point_cell(choice.point, 2, "faithfulness", "claims_per_caption")]
        row += [
            point_cell(choice.point, 3, "faithfulness", "by_kind", kind, key)
            for kind in kinds
            for key in ("precision", "told")
        ]
        rows.append(row)
    return Table(
        "faithfulness",
        "Are the captions true? Test split",
        columns,
        rows,
        [
            "true: share of what the captions claim that holds of their image; told: share of the image's facts that "
            "the caption tells; claims: per caption.",
            *protocols.notes,
        ],
        protocols.warning,
    )


def diversity_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """How varied the captions are; None where it was not measured."""
    points = _points(choices)
    keys = [key for key in DIVERSITY if _measured(points, "diversity", key)]
    if not keys:
        return None
    rows, protocols = [], _protocols(points)
    for choice in choices:
        cells = [point_cell(choice.point, DIVERSITY[key][1], "diversity", key) for key in keys]
        rows.append([chosen_name(choice, protocols), *cells])
    return Table(
        "diversity",
        "Diversity of the captions, test split",
        [Column("Method", text=True), *(Column(DIVERSITY[key][0]) for key in keys)],
        rows,
        [
            "words: per caption; vocabulary: different words; distinct: different captions, a caption; Div-n: "
            "different n-grams, a word, over all captions together; repeats (a content bigram twice, or a word twice "
            "in a row) and no end: shares of the captions.",
            *(note for key, note in EXPLAINED.items() if key in keys),
            *protocols.notes,
        ],
        protocols.warning,
    )


def drift_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """How well each listener still understands people after joint training; None where it was not measured."""
    points = _points(choices)
    if not _measured(points, "human", "own", "text_to_image", "R@10"):
        return None
    protocols = _protocols(points)
    rows = []
    for choice in choices:
        if choice.point is None:
            continue
        row = [chosen_name(choice, protocols)]
        row += [point_cell(choice.point, 1, "human", judge, "text_to_image", "R@10") for judge in ("before", "own")]
        rows.append([*row, _drift(choice.point)])
    return Table(
        "drift",
        "Drift of the listener: R@10 of human captions in %, test split",
        [Column("Listener of", text=True), Column("before"), Column("after"), Column("drift")],
        rows,
        [
            "before and after joint training. Below 0: the listener has become attuned to its speaker, at people's "
            "cost.",
            *protocols.notes,
        ],
        protocols.warning,
    )


def drift(point: Point) -> list[float]:
    """One number a seed: human captions' R@10 by the own listener minus that by the listener before; or nothing."""
    found = []
    for run in point.runs:
        own, before = (run.value("test", "human", judge, "text_to_image", "R@10") for judge in ("own", "before"))
        if own is None or before is None:
            return []
        found.append(own - before)
    return found


def crossed_table(crossed: Mapping[str, Any]) -> Table:
    """Each method's captions (rows) through every listener (columns). Raises UserError if it is not of that form."""
    _checked(crossed)
    rows = [
        [name, *(_mean_and_spread(cell) for cell in cells)]
        for name, cells in zip(crossed["captions"], crossed["matrix"], strict=True)
    ]
    seeds = len(crossed["seeds"])
    names = {"before": "before", "judge": "judge", "adapted": "adapted"}
    columns = [Column("Captions of", text=True)]
    columns += [Column(name, "Listener" if name in names else "Own listener of") for name in crossed["listeners"]]
    notes = [
        "before: the listener before joint training; judge: an independent judge; adapted: the listener before, after "
        "learning on this row's captions.",
        "Where captions and listener are of one method and seed, the two learned together.",
    ]
    if seeds > 1:
        notes.insert(0, f"± is the standard deviation over {seeds} seeds.")
    if signature := crossed.get("signature"):
        notes.append("Protocol: " + " | ".join(part.strip() for part in str(signature).split("|")))
    caption = f"Who understands whom: {crossed['recall']} in %, {crossed['split']} split, from caption to image"
    return Table("crossed", caption, columns, rows, notes)


def crossed_means(crossed: Mapping[str, Any]) -> list[list[float | None]]:
    """Means over the seeds, captions by listeners; None where there is none. Raises UserError like `crossed_table`."""
    _checked(crossed)
    known = [[_known(cell) for cell in cells] for cells in crossed["matrix"]]
    return [[statistics.fmean(cell) if cell else None for cell in cells] for cells in known]


def _checked(crossed: Mapping[str, Any]) -> None:
    try:
        rows, columns = len(crossed["captions"]), len(crossed["listeners"])
        fits = len(crossed["matrix"]) == rows and all(len(cells) == columns for cells in crossed["matrix"])
        fits = fits and all(isinstance(cell, list) for cells in crossed["matrix"] for cell in cells)
        fits = fits and all(key in crossed for key in ("split", "recall", "seeds"))
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise UserError(
            "crossed.json: not captions × listeners with a list of seeds each; delete it and make it again."
        )


def _known(cell: Sequence[Any]) -> list[float]:
    """All seeds' values, or nothing if one is missing, so that no seed drops out unseen."""
    fine = all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in cell)
    return [float(value) for value in cell] if fine else []


def _mean_and_spread(cell: Sequence[Any]) -> str:
    values = _known(cell)
    if not values:
        return MISSING
    return number(statistics.fmean(values), 1, statistics.stdev(values) if len(values) > 1 else None)


def _drift(point: Point) -> str:
    values = drift(point)
    if not values:
        return MISSING
    text = number(statistics.fmean(values), 1, statistics.stdev(values) if len(values) > 1 else None)
    return text.replace("-", "−") if text.startswith("-") and float(text.split("±")[0]) else text.removeprefix("-")


def _points(choices: Sequence[Choice]) -> list[Point]:
    return [choice.point for choice in choices if choice.point]


def _protocols(points: Sequence[Point]) -> Protocols:
    return Protocols(run for point in points for run in point.runs)


def _measured(points: Sequence[Point], *keys: str) -> bool:
    return any(run.value("test", *keys) is not None for point in points for run in point.runs)
