"""The report of visual dialog: tables, and dialogs with what every system answers in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.analysis.captions import read_rows
from pipeline.analysis.results import Point, Results, read_json
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.report.dialog_tables import RULE, dialog_tables
from pipeline.report.export import markdown
from pipeline.report.gallery import LONGEST_SIDE, data_uri, opened
from pipeline.report.names import published
from pipeline.report.tables import Column, Table
from pipeline.runtime.files import write_atomically
from pipeline.runtime.untrusted import inside

TEMPLATE = Path(__file__).parent / "template"
SHORT = ("generators", "discriminators", "claims")  # tables for the terminal


@dataclass(frozen=True)
class ShownDialog:
    """A dialog about an image, a row a round: what was asked, what people said, and what each system answers."""

    id: str
    picture: str | None  # as a data URI
    table: Table


def write_dialog_report(
    results: Results, prepared: Path, images_root: Path | None, out: Path, settings: ReportSettings
) -> None:
    """Write table.md, tables.md and report.html to `out`; equal inputs give equal bytes."""
    choices = choose_all(results, settings)
    tables = dialog_tables(results, choices, settings.control)
    points = [choice.point for choice in choices if choice.point]
    manifest = read_json(prepared / "manifest.json")
    page = _page(dataset=manifest["dataset"], tables=tables, rule=RULE, dialogs=_shown(points, images_root, settings))
    files = {
        "table.md": markdown([table for table in tables if table.name in SHORT], RULE),
        "tables.md": markdown(tables, RULE),
        "report.html": page,
    }
    for name, content in files.items():
        write_atomically(out / name, content)


def _shown(points: Sequence[Point], images_root: Path | None, settings: ReportSettings) -> list[ShownDialog]:
    """`settings.images` dialogs of the test split, drawn at random; of a setting with several seeds the first's."""
    columns = ["image", "id", "file", "round", "question", "human", "answer", "rank"]
    said: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}
    for point in points:
        run = point.runs[0]
        filters = [("split", "==", "test")]
        if run.cell is not None:
            filters += [("method", "==", run.method), ("cell", "==", run.cell)]
        rows = read_rows(run.captions, columns, filters).to_pylist()
        said[point.method] = {(row["image"], row["round"]): row for row in rows}
    first = next(iter(said.values()), {})
    images = sorted({image for image, _ in first})
    draw = np.random.Generator(np.random.Philox(key=[settings.seed, 0]))
    chosen = sorted(draw.choice(images, size=min(settings.images, len(images)), replace=False).tolist())
    return [_dialog(image, said, images_root) for image in chosen]


def _dialog(
    image: int, said: dict[str, dict[tuple[int, int], dict[str, Any]]], images_root: Path | None
) -> ShownDialog:
    here = {number: row for (of, number), row in next(iter(said.values())).items() if of == image}
    head = [Column("Question", text=True), Column("People", text=True)]
    head += [Column(what, method, text=what == "answers") for method in said for what in ("answers", "rank")]
    rows = []
    for number, row in sorted(here.items()):
        theirs = [rows_[image, number] for rows_ in said.values()]
        rows.append(
            [row["question"], row["human"], *(str(x) for each in theirs for x in (each["answer"], each["rank"]))]
        )
    of = next(iter(here.values()))
    picture = (
        data_uri(opened(inside(images_root, of["file"]), LONGEST_SIDE), 85) if images_root and of["file"] else None
    )
    return ShownDialog(of["id"], picture, Table(f"dialog-{image}", f"Image {of['id']}", head, rows))


def _page(**content: Any) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["published"] = published
    style = Markup((TEMPLATE / "page.css").read_text("utf-8"))
    return environment.get_template("dialogs.html").render(content, style=style)
