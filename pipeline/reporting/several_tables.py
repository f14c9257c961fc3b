"""Tables of several captions an image, as Chen and Jin (2020) set them: the best of a beam, and how varied sets are."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.reporting.results import Point, Results
from pipeline.reporting.selection import Choice
from pipeline.reporting.tables import Column, Protocols, Table, chosen_name, point_cell

BEST = ("METEOR", "CIDEr", "SPICE")
SETS = {"samples": "Random sampling", "beams": "Beam search"}
MEASURES = ("CIDEr", "Div-1", "Div-2", "mBLEU-4")


def best_of_beam_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """METEOR, CIDEr and SPICE of each image's best caption in a wide beam (their Table 2); None if not measured."""
    points = [choice.point for choice in choices if choice.point]
    names = [name for name in BEST if _measured(points, "beams", "best", name)]
    if not names:
        return None
    protocols = Protocols(run for point in points for run in point.runs)
    return Table(
        "best",
        "The best caption of a wide beam, test split",
        [Column("Method", text=True), *(Column(name) for name in names)],
        [
            [
                chosen_name(choice, protocols),
                *(point_cell(choice.point, 3, "several", "beams", "best", n) for n in names),
            ]
            for choice in choices
        ],
        [f"Of a beam of {_number(points, 'beams')}.", *protocols.notes],
        protocols.warning,
    )


def several_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """Quality and variety of several captions of one image (their Table 4); None where they were not measured."""
    points = [choice.point for choice in choices if choice.point]
    columns = [(kind, name) for kind in SETS for name in MEASURES if _measured(points, kind, name)]
    if not columns:
        return None
    protocols = Protocols(run for point in points for run in point.runs)
    return Table(
        "several",
        "Several captions of each image, test split",
        [Column("Method", text=True), *(Column(name, SETS[kind]) for kind, name in columns)],
        [
            [
                chosen_name(choice, protocols),
                *(point_cell(choice.point, 3, "several", kind, name) for kind, name in columns),
            ]
            for choice in choices
        ],
        [
            f"{_number(points, 'samples')} drawn at random, and the {_number(points, 'beams')} best of a beam of that "
            "width. CIDEr: mean over them; Div-n: different n-grams, a word, of an image's captions; mBLEU-4: of each "
            "against the image's others, lower is more varied.",
            *protocols.notes,
        ],
        protocols.warning,
    )


def _measured(points: Sequence[Point], *keys: str) -> bool:
    return any(run.value("test", "several", *keys) is not None for point in points for run in point.runs)


def _number(points: Sequence[Point], kind: str) -> str:
    """How many captions an image there are; several numbers where runs differ."""
    runs = [run for point in points for run in point.runs]
    counts = {int(n) for run in runs if (n := run.value("test", "several", kind, "captions")) is not None}
    return " or ".join(map(str, sorted(counts)))
