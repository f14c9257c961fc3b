"""Tables of text cells, for the page and for Markdown; each column has a function that makes its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isnan
from typing import Any

from pipeline.analysis.judge_titles import Keys, make_recall_keys
from pipeline.analysis.measured_baselines import MeasuredBaseline
from pipeline.analysis.results import MISSING, SYMBOLS, Point, Run, format_setting
from pipeline.analysis.selection import Choice, SelectionBasis
from pipeline.metrics.registry import TABLE_METRICS

RECALLS = ("R@1", "R@5", "R@10")


@dataclass(frozen=True)
class TableColumn:
    """Column of a table: its heading, and `show`, which maps the object of a row to the text of its cell.

    None and an empty text are shown as a dash. Neighbouring columns of one group have a common heading.
    """

    label: str
    group: str = ""
    show: Callable[[Any], str | None] = str
    text: bool = False  # text is aligned left; numbers are aligned right


@dataclass(frozen=True)
class Table:
    """Table of text cells; the first column names the row."""

    name: str
    caption: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    warning: str = ""  # set if the rows follow different protocols
    shades: Sequence[Sequence[int | None]] = ()  # shade of each cell except the first of a row

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Return the common headings, each with the number of columns that it spans."""
        return [(group, len(list(columns))) for group, columns in groupby(column.group for column in self.columns)]


def _describe_protocols(runs: Iterable[Run]) -> tuple[dict[str, str], list[str], str]:
    """Return a letter per protocol of `runs`, notes on the protocols, and a warning.

    With fewer than two protocols there are no letters, and the warning is empty.
    """
    methods: dict[str, dict[str, None]] = {}
    for run in runs:
        methods.setdefault(run.protocol, {})[run.method] = None
    fields = [[part.strip() for part in signature.split("|")] for signature in methods]
    if len(methods) < 2:
        return {}, [f"Protocol: {' | '.join(parts)}" for parts in fields], ""
    letters = {signature: chr(ord("A") + n) for n, signature in enumerate(methods)}
    names = [f"{letters[signature]} ({', '.join(rows)})" for signature, rows in methods.items()]
    differences = ""
    if len({len(parts) for parts in fields}) == 1:
        pairs = [" / ".join(pair) for pair in zip(*fields, strict=True) if len(set(pair)) > 1]
        differences = f"; they differ in: {'; '.join(pairs)}"
    return (
        letters,
        [f"Protocol {name}: {' | '.join(parts)}" for name, parts in zip(names, fields, strict=True)],
        f"These rows were measured under {len(methods)} protocols{differences}. "
        "Do not compare numbers with different letters.",
    )


def fill_table(
    name: str,
    caption: str,
    rows: Sequence[tuple[str, Sequence[Run], Any]],
    columns: Sequence[TableColumn],
    notes: Iterable[str] = (),
    head: str = "Method",
    other_runs: Sequence[Run] = (),
) -> Table:
    """Build a table from `rows`; each row is a name, its runs, and the argument of the columns (None: only dashes).

    `head` is the heading of the names. `other_runs` have no row, but their protocols are compared, too.
    """
    letters, protocols, warning = _describe_protocols([*(run for _, runs, _ in rows for run in runs), *other_runs])
    cells = []
    for row_name, runs, value in rows:
        mark = "".join(sorted({letters[run.protocol] for run in runs})) if letters else ""
        texts = [None if value is None else column.show(value) for column in columns]
        cells.append([row_name + (f" [{mark}]" if mark else ""), *(text or MISSING for text in texts)])
    return Table(name, caption, [TableColumn(head, text=True), *columns], cells, [*notes, *protocols], warning)


def make_chosen_rows(choices: Sequence[Choice]) -> list[tuple[str, Sequence[Run], Point | None]]:
    """Return rows for `fill_table`, one per choice; the name has the mark of the selection basis."""
    marks = {SelectionBasis.BELOW: "*", SelectionBasis.UNMEASURED: "†"}
    return [(c.method + marks.get(c.basis, ""), c.point.runs if c.point else (), c.point) for c in choices]


def format_number(value: float | None, digits: int, spread: float | None = None) -> str:
    """Format `value` with `digits` decimals, and ± `spread` if given; None and NaN become a dash, not 0."""
    if value is None or isnan(value):
        return MISSING
    return f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f}±{spread:.{digits}f}"


def format_sign(text: str) -> str:
    """Return a number's text with a typographic minus, and without a sign before 0."""
    if text.startswith(("+", "-")) and not float(text.partition("±")[0]):
        return text[1:]
    return text.replace("-", "−")


def make_metric_column(
    label: str, keys: Keys, digits: int = 1, group: str = "", split: str = "test", spread: bool = True
) -> TableColumn:
    """Return a column of the metric at `keys`: mean over seeds on `split`, with `spread` ± the standard deviation."""

    def show(point: Point) -> str:
        return format_number(point.mean(split, *keys), digits, point.spread(split, *keys) if spread else None)

    return TableColumn(label, group, show)


def make_language_column(name: str, group: str = "", split: str = "test", spread: bool = True) -> TableColumn:
    """Return a column of the language metric `name`, with the metric's decimals."""
    return make_metric_column(name, ("language", name), TABLE_METRICS[name].digits, group, split, spread)


def make_setting_column(name: str, group: str = "") -> TableColumn:
    """Return a column of the setting `name` of a point."""
    return TableColumn(SYMBOLS.get(name, name), group, lambda point: format_setting(point.runs[0], name))


def make_median_rank_column(judge: str, *subkeys: str, group: str = "") -> TableColumn:
    """Return a column of the median rank (averaged over seeds), without a decimal if it is an integer."""

    def show(point: Point) -> str:
        value = point.mean("test", *make_recall_keys(judge, "median_rank", *subkeys))
        return format_number(value, 0 if value is not None and value == round(value) else 1)

    return TableColumn("med.", group, show)


def make_recall_columns(judge: str, title: str, *subkeys: str) -> list[TableColumn]:
    """Return the columns of recalls and median rank by a judge."""
    recalls = [make_metric_column(name, make_recall_keys(judge, name, *subkeys), group=title) for name in RECALLS]
    return [*recalls, make_median_rank_column(judge, *subkeys, group=title)]


def make_rows_with_baselines(
    choices: Sequence[Choice], baselines: Sequence[MeasuredBaseline]
) -> list[tuple[str, Sequence[Run], Point | None]]:
    """Return rows for `fill_table`, one per choice, followed by one per baseline without training."""
    multiple_methods = len({baseline.evaluated_with.method for baseline in baselines}) > 1
    labels = [f"{b.name} ({b.evaluated_with.method})" if multiple_methods else b.name for b in baselines]
    return [
        *make_chosen_rows(choices),
        *((name, b.point.runs, b.point) for name, b in zip(labels, baselines, strict=True)),
    ]


def drop_repeated_notes(tables: Iterable[Table], earlier: Iterable[str] = ()) -> list[Table]:
    """Return the tables without notes that `earlier` or a previous table has; notes on the protocol are kept."""
    known_notes, result = set(earlier), []
    for table in tables:
        new_notes = [note for note in table.notes if note not in known_notes or note.startswith("Protocol")]
        known_notes.update(new_notes)
        result.append(replace(table, notes=new_notes))
    return result


def remove_protocol_notes(tables: Sequence[Table]) -> list[Table]:
    """Remove the notes on the common protocol, which the page shows once among the settings."""
    return [replace(table, notes=[n for n in table.notes if not n.startswith("Protocol: ")]) for table in tables]


def format_markdown_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right_aligned: Sequence[bool],
    min_width: int = 3,
    padded: bool = True,
) -> str:
    """Return a Markdown table; columns are aligned left unless `right_aligned`.

    With `padded`, cells are padded to equal width per column. `min_width` is the minimal width in characters.
    """
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (head, *rows)]
    widths = [max(min_width, *map(len, column)) if padded else min_width for column in zip(*lines, strict=True)]
    lines.insert(
        1, ["-" * (width - is_right) + ":" * is_right for width, is_right in zip(widths, right_aligned, strict=True)]
    )

    def format_line(cells: Sequence[str]) -> str:
        columns = zip(cells, widths, right_aligned, strict=True)
        return f"| {' | '.join(c.rjust(width) if is_right else c.ljust(width) for c, width, is_right in columns)} |"

    return "\n".join(map(format_line, lines))
