"""Report on visual dialog: tables, and example dialogs with the answers of every system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from pipeline import report
from pipeline.analysis.caption_files import read_rows
from pipeline.analysis.results import Point, Results, Run, read_results_json
from pipeline.analysis.selection import ReportSettings, choose_best
from pipeline.dialog.report.dialog_ranking import METHOD_JUDGES, MRR
from pipeline.dialog.report.dialog_tables import RANKING, RULE, TITLES, build_dialog_tables
from pipeline.errors import UserError
from pipeline.features.animated_thumbnail import encode_data_uri
from pipeline.report.gallery import MAX_SIDE, open_thumbnail
from pipeline.report.html_templates import open_templates
from pipeline.report.method_names import replace_method_names
from pipeline.report.number_files import format_csv, format_markdown
from pipeline.runtime.files import write_atomically
from pipeline.runtime.untrusted import resolve_inside

TEMPLATE = Path(__file__).parent / "template"
PAGE_TEMPLATE = Path(report.__file__).parent / "template"  # macros and style of the core's page
TERMINAL_TABLES = ("generators", "discriminators", "claims")  # names of the tables for the terminal
RANK = "rank_"  # prefix of the columns with a ranker's ranks

Row = dict[str, Any]  # row of a captions file


@dataclass(frozen=True)
class SystemAnswer:
    """Answer of one system to a question."""

    system: str
    answer: str
    relevance: float | None  # None if unknown
    rank: int  # rank of the human answer by this system


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of one system for a question."""

    history: list[float]  # weight of each history item so far
    cells: list[list[float]]  # rows of the regions' weights, divided by the largest; [] unless the grid is square


@dataclass(frozen=True)
class ExampleRound:
    """Question of an example dialog, with all its answers."""

    number: int
    question: str
    human: str
    answers: list[SystemAnswer]
    ranks: list[tuple[str, int]]  # rank of the human answer by each ranker except METHOD_JUDGES
    best: list[str]  # highest-ranked candidates of one system
    attention: AttentionMap | None  # attention of the same system


@dataclass(frozen=True)
class ExampleDialog:
    """Example dialog about an image."""

    id: str  # image id
    picture: str | None  # data URI
    shape: str  # CSS aspect ratio, width / height
    caption: str
    rounds: list[ExampleRound]

    def history(self, number: int) -> list[str]:
        """Return the caption and the rounds before round `number`, as text."""
        return [self.caption, *(f"{example.question}? {example.human}" for example in self.rounds[: number - 1])]


def write_dialog_report(
    results: Results, prepared: Path, images_root: Path | None, out: Path, settings: ReportSettings
) -> None:
    """Write table.md, tables.md, curve.csv and report.html to `out`; equal inputs give equal bytes.

    Raises UserError where no method has a selected setting.
    """
    choices = choose_best(results, MRR)
    tables = build_dialog_tables(results, choices, settings.control)
    points = [choice.point for choice in choices if choice.point]
    if not points:
        raise UserError(
            "report: each method has several settings and no validation MRR; add val to evaluate.splits and run again"
        )
    best = max(points, key=lambda point: point.mean("val", "ranking", "MRR") or 0.0).method
    manifest = read_results_json(prepared / "manifest.json")
    page = _render_page(
        dataset=manifest["dataset"],
        tables=tables,
        rule=RULE,
        dialogs=_draw_example_dialogs(points, best, images_root, settings),
        best=best,
        titles=TITLES,
    )
    files = {
        "table.md": format_markdown([table for table in tables if table.name in TERMINAL_TABLES], RULE),
        "tables.md": format_markdown(tables, RULE),
        "curve.csv": _format_curve(results),
        "report.html": page,
    }
    for name, content in files.items():
        write_atomically(out / name, content)


def _format_curve(results: Results) -> str:
    """Return a CSV text with a line per run and split; numbers are unrounded, and missing numbers are empty."""
    names = [name for name, _ in RANKING]
    rows = [
        {"method": run.method, "split": split, **run.settings, **{n: run.value(split, "ranking", n) for n in names}}
        for run in results.runs
        for split in ("val", "test")
    ]
    settings = dict.fromkeys(("seed", *sorted({key for run in results.runs for key in run.settings})))
    return format_csv(["method", *settings, "split", *names], rows)


def _draw_example_dialogs(
    points: Sequence[Point], best: str, images_root: Path | None, settings: ReportSettings
) -> list[ExampleDialog]:
    """Return up to `settings.images` dialogs drawn at random from the test split, with answers by the first seed.

    The method `best` gives the attention and the highest-ranked candidates. A method whose captions lack a round has
    no answer there.
    """
    rankers = [name for name in _list_rankers(points) if name not in METHOD_JUDGES]
    run = next(point.runs[0] for point in points if point.method == best)
    images = sorted({row["image"] for row in _read_rows(run, ["image"])})
    rng = np.random.Generator(np.random.Philox(key=[settings.seed, 0]))
    drawn_images = sorted(rng.choice(images, size=min(settings.images, len(images)), replace=False).tolist())
    columns = ["id", "file", "caption", "question", "human", "answer", "relevance_answer", "rank", "best"]
    columns += ["history_shares", "regions_shares", *(f"{RANK}{name}" for name in rankers)]
    rows_by_method: dict[str, dict[tuple[int, int], Row]] = {}
    for point in points:
        rows = _read_rows(point.runs[0], ["image", "round", *columns], drawn_images)
        rows_by_method[point.method] = {(row["image"], row["round"]): row for row in rows}
    return [_build_dialog(image, rows_by_method, best, rankers, images_root) for image in drawn_images]


def _list_rankers(points: Sequence[Point]) -> list[str]:
    """Return the names of all rankers of candidates: judges, and the evaluations' other discriminators and priors."""
    numbers = (keys for point in points for keys in point.runs[0].numbers)
    return list(dict.fromkeys(keys[2] for keys in numbers if keys[1] in ("judges", "rankers")))


def _read_rows(run: Run, columns: Sequence[str], images: Sequence[int] | None = None) -> list[Row]:
    filters: list[Any] = [("split", "==", "test")]
    filters += [] if images is None else [("image", "in", list(images))]
    if run.cell is not None:
        filters += [("method", "==", run.method), ("cell", "==", run.cell)]
    return read_rows(run.captions, columns, filters).to_pylist()


def _build_dialog(
    image: int,
    rows_by_method: Mapping[str, Mapping[tuple[int, int], Row]],
    best: str,
    rankers: Iterable[str],
    root: Path | None,
) -> ExampleDialog:
    rounds = []
    for number in sorted(number for row_image, number in rows_by_method[best] if row_image == image):
        rows = {
            method: method_rows[image, number]
            for method, method_rows in rows_by_method.items()
            if (image, number) in method_rows
        }
        ranks = {name: row[f"{RANK}{name}"] for name in rankers for row in rows.values() if row.get(f"{RANK}{name}")}
        answers = [
            SystemAnswer(method, row["answer"], row.get("relevance_answer"), row["rank"])
            for method, row in rows.items()
        ]
        row = rows[best]
        rounds.append(
            ExampleRound(
                number, row["question"], row["human"], answers, list(ranks.items()), row["best"], _read_attention(row)
            )
        )
    picture, shape = None, ""
    if root and row["file"]:
        thumbnail = open_thumbnail(resolve_inside(root, row["file"]), MAX_SIDE)
        picture, shape = encode_data_uri(thumbnail, 85), f"{thumbnail.width} / {thumbnail.height}"
    return ExampleDialog(row["id"], picture, shape, row["caption"], rounds)


def _read_attention(row: Row) -> AttentionMap | None:
    """Return the attention in a row; None for a system without attention."""
    if row.get("history_shares") is None:
        return None
    shares = np.array(row["regions_shares"])
    side = isqrt(len(shares))
    cells = (shares / max(shares.max(), 1e-9)).reshape(side, side) if side * side == len(shares) else np.zeros((0, 0))
    return AttentionMap(row["history_shares"][: row["round"]], cells.round(2).tolist())


def _render_page(**content: Any) -> str:
    environment = open_templates([TEMPLATE, PAGE_TEMPLATE])
    environment.filters["published"] = replace_method_names
    style = Markup((PAGE_TEMPLATE / "page.css").read_text("utf-8") + (TEMPLATE / "dialogs.css").read_text("utf-8"))
    return environment.get_template("dialogs.html").render(content, style=style)
