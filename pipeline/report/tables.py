"""Tables as text cells, for the page and for Markdown: columns that know what they show of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pipeline.analysis.judges import Keys, recall_by
from pipeline.analysis.results import MISSING, SYMBOLS, Point, Run, setting
from pipeline.analysis.selection import Basis, Choice

RECALLS = ("R@1", "R@5", "R@10")


@dataclass(frozen=True)
class Column:
    """A heading, and what stands below it: the text `show` makes of what a row is of, or else a dash.

    Neighbours with one group stand under a common heading.
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


class Protocols:
    """The signatures of the runs in one table: one is printed below it, several get a letter each and a warning."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.methods: dict[str, dict[str, None]] = {}
        for run in runs:
            self.methods.setdefault(run.protocol, {})[run.method] = None
        self.letters = {signature: chr(ord("A") + n) for n, signature in enumerate(self.methods)}

    def mark(self, runs: Sequence[Run]) -> str:
        """The letters of the protocols of `runs`, nothing if the whole table has one."""
        letters = "".join(sorted({self.letters[run.protocol] for run in runs}))
        return f" [{letters}]" if letters and len(self.methods) > 1 else ""

    @property
    def notes(self) -> list[str]:
        readable = {signature: " | ".join(part.strip() for part in signature.split("|")) for signature in self.methods}
        if len(readable) == 1:
            return [f"Protocol: {words}" for words in readable.values()]
        return [f"Protocol {self.letters[s]} ({', '.join(self.methods[s])}): {words}" for s, words in readable.items()]

    @property
    def warning(self) -> str:
        """Which fields of the signatures differ; empty if there is one signature."""
        if len(self.methods) < 2:
            return ""
        fields, differing = [signature.split("|") for signature in self.methods], ""
        if len({len(parts) for parts in fields}) == 1:
            pairs = zip(*fields, strict=True)
            differing = "; they differ in: " + "; ".join(" / ".join(pair) for pair in pairs if len(set(pair)) > 1)
        return (
            f"These rows were measured under {len(self.methods)} protocols{differing}. "
            "Do not compare numbers with different letters."
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
    """The table of `rows`: what each is called, the runs that it is of, and what the columns show, if anything.

    `head` stands above the names. Runs `beside` have no row, but count with the protocols.
    """
    protocols = Protocols([*(run for _, runs, _ in rows for run in runs), *beside])
    cells = [
        [called + protocols.mark(runs), *((None if of is None else column.show(of)) or MISSING for column in columns)]
        for called, runs, of in rows
    ]
    columns = [Column(head, text=True), *columns]
    return Table(name, caption, columns, cells, [*notes, *protocols.notes], protocols.warning)


def of_choices(
    name: str,
    caption: str,
    choices: Sequence[Choice],
    columns: Sequence[Column],
    notes: Iterable[str] = (),
    head: str = "Method",
) -> Table:
    """A row a choice, with the mark of how it was chosen."""
    marks = {Basis.BELOW: "*", Basis.UNMEASURED: "†"}
    rows = [(c.method + marks.get(c.basis, ""), c.point.runs if c.point else (), c.point) for c in choices]
    return filled(name, caption, rows, columns, notes, head)


def number(value: float | None, digits: int, spread: float | None = None) -> str:
    """`value` with `digits` decimals, ± its spread where there is one; a dash, never 0, where there is none."""
    if value is None:
        return MISSING
    return f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f}±{spread:.{digits}f}"


def measured(label: str, keys: Keys, digits: int = 1, group: str = "", split: str = "test") -> Column:
    """Of a point the split's number at `keys`, mean ± deviation over the seeds."""
    return Column(label, group, lambda of: number(of.mean(split, *keys), digits, of.spread(split, *keys)))


def mean(label: str, keys: Keys, digits: int = 1) -> Column:
    """The same without the deviation."""
    return Column(label, show=lambda point: number(point.mean("test", *keys), digits))


def dial(name: str, group: str = "") -> Column:
    """A setting of a point's runs."""
    return Column(SYMBOLS.get(name, name), group, lambda point: setting(point.runs[0], name))


def median(judge: str, *where: str, group: str = "") -> Column:
    """The median rank (averaged over seeds), without a decimal where it is whole."""

    def show(point: Point) -> str:
        value = point.mean("test", *recall_by(judge, "median_rank", *where))
        return number(value, 0 if value is not None and value == round(value) else 1)

    return Column("med.", group, show)


def ranks(judge: str, title: str, *where: str) -> list[Column]:
    """Recalls and median rank by a judge."""
    recalls = [measured(name, recall_by(judge, name, *where), group=title) for name in RECALLS]
    return [*recalls, median(judge, *where, group=title)]


def once(tables: Iterable[Table], said: Iterable[str] = ()) -> list[Table]:
    """The tables without notes that stand above them (or are `said` before), except the protocol."""
    known, found = set(said), []
    for table in tables:
        fresh = [note for note in table.notes if note not in known or note.startswith("Protocol")]
        known.update(fresh)
        found.append(replace(table, notes=fresh))
    return found
