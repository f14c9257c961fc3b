"""Tables of text cells, for the page and for Markdown; a column has the function that makes its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isnan
from typing import Any

from pipeline.analysis.baselines import Baseline
from pipeline.analysis.judges import Keys, recall_by
from pipeline.analysis.results import MISSING, SYMBOLS, Point, Run, setting
from pipeline.analysis.selection import Basis, Choice

RECALLS = ("R@1", "R@5", "R@10")


@dataclass(frozen=True)
class Column:
    """A heading, and `show`: from what a row is about to the text of its cell; None gives a dash.

    Neighbouring columns of one group have a common heading.
    """

    label: str
    group: str = ""
    show: Callable[[Any], str | None] = str
    text: bool = False  # text is set flush left, numbers flush right


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first column names the row."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    warning: str = ""  # the rows do not follow one protocol
    shades: Sequence[Sequence[int | None]] = ()  # how dark each cell but the first of a row is

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Common headings and how many columns each spans."""
        return [(group, len(list(columns))) for group, columns in groupby(column.group for column in self.columns)]


def _protocols(runs: Iterable[Run]) -> tuple[dict[str, str], list[str], str]:
    """A letter for each signature of `runs` if there are several, the notes that say what they are, and a warning."""
    methods: dict[str, dict[str, None]] = {}
    for run in runs:
        methods.setdefault(run.protocol, {})[run.method] = None
    fields = [[part.strip() for part in signature.split("|")] for signature in methods]
    if len(methods) < 2:
        return {}, [f"Protocol: {' | '.join(parts)}" for parts in fields], ""
    letters = {signature: chr(ord("A") + n) for n, signature in enumerate(methods)}
    named = [f"{letters[signature]} ({', '.join(names)})" for signature, names in methods.items()]
    differing = ""
    if len({len(parts) for parts in fields}) == 1:
        pairs = [" / ".join(pair) for pair in zip(*fields, strict=True) if len(set(pair)) > 1]
        differing = f"; they differ in: {'; '.join(pairs)}"
    return (
        letters,
        [f"Protocol {name}: {' | '.join(parts)}" for name, parts in zip(named, fields, strict=True)],
        f"These rows were measured under {len(methods)} protocols{differing}. "
        "Do not compare numbers with different letters.",
    )


def filled(
    name: str,
    caption: str,
    rows: Sequence[tuple[str, Sequence[Run], Any]],
    columns: Sequence[Column],
    notes: Iterable[str] = (),
    head: str = "Method",
    beside: Sequence[Run] = (),
) -> Table:
    """The table of `rows`: what each is called, its runs, and what is passed to the columns (None: only dashes).

    `head` stands above the names. Runs `beside` have no row, but their protocols count.
    """
    letters, protocols, warning = _protocols([*(run for _, runs, _ in rows for run in runs), *beside])
    cells = []
    for called, runs, of in rows:
        mark = "".join(sorted({letters[run.protocol] for run in runs})) if letters else ""
        shown = [None if of is None else column.show(of) for column in columns]
        cells.append([called + (f" [{mark}]" if mark else ""), *(text or MISSING for text in shown)])
    return Table(name, caption, [Column(head, text=True), *columns], cells, [*notes, *protocols], warning)


def chosen(choices: Sequence[Choice]) -> list[tuple[str, Sequence[Run], Point | None]]:
    """Rows for `filled`, one a choice, with the mark of how it was chosen."""
    marks = {Basis.BELOW: "*", Basis.UNMEASURED: "†"}
    return [(c.method + marks.get(c.basis, ""), c.point.runs if c.point else (), c.point) for c in choices]


def number(value: float | None, digits: int, spread: float | None = None) -> str:
    """`value` with `digits` decimals, ± its spread where there is one; a dash, never 0, where it is None or NaN."""
    if value is None or isnan(value):
        return MISSING
    return f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f}±{spread:.{digits}f}"


def signed(text: str) -> str:
    """A number's text with a typographic minus, and without a sign before 0."""
    if text.startswith(("+", "-")) and not float(text.partition("±")[0]):
        return text[1:]
    return text.replace("-", "−")


def measured(
    label: str, keys: Keys, digits: int = 1, group: str = "", split: str = "test", spread: bool = True
) -> Column:
    """Of a point the split's number at `keys`: mean over the seeds, with `spread` ± their standard deviation."""

    def show(point: Point) -> str:
        return number(point.mean(split, *keys), digits, point.spread(split, *keys) if spread else None)

    return Column(label, group, show)


def dial(name: str, group: str = "") -> Column:
    """A setting of a point's runs."""
    return Column(SYMBOLS.get(name, name), group, lambda point: setting(point.runs[0], name))


def median(judge: str, *where: str, group: str = "") -> Column:
    """The median rank (averaged over seeds), without a decimal if it is an integer."""

    def show(point: Point) -> str:
        value = point.mean("test", *recall_by(judge, "median_rank", *where))
        return number(value, 0 if value is not None and value == round(value) else 1)

    return Column("med.", group, show)


def ranks(judge: str, title: str, *where: str) -> list[Column]:
    """Recalls and median rank by a judge."""
    recalls = [measured(name, recall_by(judge, name, *where), group=title) for name in RECALLS]
    return [*recalls, median(judge, *where, group=title)]


def with_baselines(
    choices: Sequence[Choice], found: Sequence[Baseline]
) -> list[tuple[str, Sequence[Run], Point | None]]:
    """Rows for `filled`, one a choice, and below them one for each of the captions without training."""
    several = len({baseline.beside.method for baseline in found}) > 1
    beside = [f"{b.name} ({b.beside.method})" if several else b.name for b in found]
    return [*chosen(choices), *((name, b.point.runs, b.point) for name, b in zip(beside, found, strict=True))]


def once(tables: Iterable[Table], said: Iterable[str] = ()) -> list[Table]:
    """The tables without the notes of earlier ones and those in `said`; the protocol stays."""
    known, found = set(said), []
    for table in tables:
        fresh = [note for note in table.notes if note not in known or note.startswith("Protocol")]
        known.update(fresh)
        found.append(replace(table, notes=fresh))
    return found


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], least: int = 3, padded: bool = True
) -> str:
    """A Markdown table, its columns flush `right` or left; `padded`: in line, each at least `least` characters wide."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (head, *rows)]
    widths = [max(least, *map(len, column)) if padded else least for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * (width - flush) + ":" * flush for width, flush in zip(widths, right, strict=True)])

    def line(cells: Sequence[str]) -> str:
        columns = zip(cells, widths, right, strict=True)
        return f"| {' | '.join(c.rjust(width) if flush else c.ljust(width) for c, width, flush in columns)} |"

    return "\n".join(map(line, lines))
