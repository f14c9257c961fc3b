"""The tables as text cells, for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.reporting.results import LANGUAGE, SHORT, SYMBOLS, Point, Results, Run
from pipeline.reporting.selection import Basis, Choice

MISSING = "–"
RECALLS = ("R@1", "R@5", "R@10")
DIVERSITY = {
    "words_per_caption": "words",
    "distinct_captions": "distinct",
    "repetition": "repeats",
    "unfinished": "no end",
}


@dataclass(frozen=True)
class Column:
    """A heading; neighbours with one group stand under a common one."""

    label: str
    group: str = ""
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

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Common headings and how many columns each spans."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans


def number(value: float | None, digits: int, spread: float | None = None) -> str:
    """`value` with `digits` decimals, ± its spread where there is one; a dash, never 0, where there is none."""
    if value is None:
        return MISSING
    return f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f}±{spread:.{digits}f}"


def setting(point: Point | Run | None, name: str) -> str:
    value = None if point is None else point.settings.get(name)
    return MISSING if value is None else f"{value:g}" if isinstance(value, float) else str(value)


class Protocols:
    """The signatures of the runs in one table: one is printed below it, several get a letter each and a warning."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.methods: dict[str, list[str]] = {}
        for run in runs:
            methods = self.methods.setdefault(run.protocol, [])
            if run.method not in methods:
                methods.append(run.method)

    def mark(self, runs: Iterable[Run]) -> str:
        """The letters of the protocols of `runs`, nothing if the whole table has one."""
        if len(self.methods) < 2:
            return ""
        signatures = list(self.methods)
        return " [" + "".join(sorted({_letter(signatures.index(run.protocol)) for run in runs})) + "]"

    @property
    def notes(self) -> list[str]:
        if len(self.methods) == 1:
            return [f"Protocol: {_readable(next(iter(self.methods)))}"]
        return [
            f"Protocol {_letter(n)} ({', '.join(methods)}): {_readable(signature)}"
            for n, (signature, methods) in enumerate(self.methods.items())
        ]

    @property
    def warning(self) -> str:
        """Which fields of the signatures differ; empty if there is one signature."""
        if len(self.methods) < 2:
            return ""
        fields = [signature.split("|") for signature in self.methods]
        differing = ""
        if len({len(parts) for parts in fields}) == 1:
            pairs = zip(*fields, strict=True)
            differing = "; they differ in: " + "; ".join(" / ".join(pair) for pair in pairs if len(set(pair)) > 1)
        return (
            f"These rows were measured under {len(self.methods)} protocols{differing}. "
            "Do not compare numbers with different letters."
        )


def results_table(results: Results, choices: Sequence[Choice], direction: str = "text_to_image") -> Table:
    """Per method, at the λ chosen on validation: language metrics and recall by each judge on the test split."""
    protocols = Protocols(run for choice in choices if choice.point for run in choice.point.runs)
    language = _language(results)
    forward = direction == "text_to_image"
    dials = _dials(results)
    columns = [Column("Method", text=True), *(Column(SYMBOLS[name], "Chosen") for name in dials)]
    columns += [Column("seeds", "Chosen")]
    if forward:
        columns += [Column(name, "Language metrics") for name in language]
    columns += [Column(name, SHORT[judge]) for judge in results.judges for name in (*RECALLS, "med.")]
    rows = []
    for choice in choices:
        point = choice.point
        row = [chosen_name(choice, protocols), *(setting(point, name) for name in dials), _seeds(point)]
        if forward:
            row += [point_cell(point, 3, "language", name) for name in language]
        for judge in results.judges:
            row += [point_cell(point, 1, judge, direction, name) for name in RECALLS]
            row.append(_median(point, judge, direction))
        rows.append(row)
    what = "from caption to image" if forward else "from image to caption"
    return Table(
        name="results" if forward else "reverse",
        caption=f"Test split, {what}: recall in % of {_images(results)} images and median rank (med.)",
        columns=columns,
        rows=rows,
        notes=[
            *_spread_note(choices),
            *_choice_notes(results, choices),
            *(_not_computed(results) if forward else ()),
            *protocols.notes,
        ],
        warning=protocols.warning,
    )


def human_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Human captions through each chosen setting's judges; own listeners differ, the others should not."""
    points = [choice.point for choice in choices if choice.point]
    protocols = Protocols(run for point in points for run in point.runs)
    columns = [Column("Listener of", text=True)]
    columns += [Column(name, SHORT[judge]) for judge in results.judges for name in (*RECALLS, "med.")]
    rows = []
    for point in points:
        row = [point.method + protocols.mark(point.runs)]
        for judge in results.judges:
            row += [point_cell(point, 1, "human", judge, "text_to_image", name) for name in RECALLS]
            row.append(_median(point, "human", judge, "text_to_image"))
        rows.append(row)
    caption = "Human captions of the test split through the same judges: recall in % and median rank (med.)"
    return Table("human", caption, columns, rows, protocols.notes, protocols.warning)


def runs_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Every run: each cell of the sweep and each single run of the chain."""
    chosen = {id(run) for choice in choices if choice.point and choice.of > 1 for run in choice.point.runs}
    protocols = Protocols(results.runs)
    dials, others = _dials(results), other_settings(results)
    symbols = [SYMBOLS[name] for name in dials]
    columns = [Column("Method", text=True), *(Column(name) for name in (*symbols, *others, "seed"))]
    columns += [Column("CIDEr", "Validation"), Column("R@10 own", "Validation")]
    columns += [Column("CIDEr", "Test"), *(Column(f"R@10 {judge}", "Test") for judge in results.judges)]
    columns += [Column(label, "Test captions") for label in DIVERSITY.values()]
    rows = []
    for run in results.runs:
        name = run.method + (" ✓" if id(run) in chosen else "") + protocols.mark([run])
        row = [name, *(setting(run, key) for key in (*dials, *others, "seed"))]
        row += [number(run.value("val", "language", "CIDEr"), 3)]
        row += [number(run.value("val", "own", "text_to_image", "R@10"), 1)]
        row += [number(run.value("test", "language", "CIDEr"), 3)]
        row += [number(run.value("test", judge, "text_to_image", "R@10"), 1) for judge in results.judges]
        row += [
            number(run.value("test", "diversity", key), 1 if key == "words_per_caption" else 3) for key in DIVERSITY
        ]
        rows.append(row)
    notes = [
        "✓ chosen on validation. words: per caption; distinct, repeats (a content bigram twice, or a word twice in a "
        "row) and no end: shares of the captions.",
        *protocols.notes,
    ]
    return Table(
        "runs", "One line a model; recall in %, from caption to image", columns, rows, notes, protocols.warning
    )


def compact_tables(results: Results, choices: Sequence[Choice]) -> tuple[Table, Table]:
    """The results in two tables narrow enough for a terminal; the notes of both are with the second."""
    protocols = Protocols(run for choice in choices if choice.point for run in choice.point.runs)
    others = _language(results)[1:]
    fewer = [judge for judge in results.judges if judge != "adapted"]  # the second table has no room for it
    dials = _dials(results)
    ahead = [Column("Method", text=True), *(Column(SYMBOLS[name]) for name in dials), Column("seeds")]
    ahead += [Column("CIDEr"), *(Column(f"R@10 {judge}") for judge in results.judges), Column("repeats")]
    behind = [Column("Method", text=True), *(Column(name) for name in others)]
    behind += [Column(f"R@1/5/med {judge}") for judge in fewer]
    first, second = [], []
    for choice in choices:
        point, name = choice.point, chosen_name(choice, protocols)
        row = [name, *(setting(point, name) for name in dials), _seeds(point)]
        row += [point_cell(point, 3, "language", "CIDEr")]
        row += [point_cell(point, 1, judge, "text_to_image", "R@10") for judge in results.judges]
        first.append([*row, _mean(point, 3, "diversity", "repetition")])
        row = [name, *(_mean(point, 3, "language", metric) for metric in others)]
        for judge in fewer:
            recall = [_mean(point, 1, judge, "text_to_image", key) for key in ("R@1", "R@5")]
            row.append(" ".join([*recall, _median(point, judge, "text_to_image")]))
        second.append(row)
    judges = "; ".join(f"{name}: {words}" for name, words in results.judges.items())
    images = _images(results)
    notes = [
        f"Recall in % of {images} test images, from caption to image, and median rank (med). Judges: {judges}.",
        *_spread_note(choices),
        *_choice_notes(results, choices),
        *_not_computed(results),
        *results.notes,
        *protocols.notes,
    ]
    return (
        Table("results", "Results at the chosen λ", ahead, first),
        Table("more", "More metrics at the chosen λ", behind, second, notes, protocols.warning),
    )


def other_settings(results: Results) -> list[str]:
    """Settings besides λ, ρ, γ and the seed that have several values within a method."""
    return sorted({key for method in results.methods for key in results.varying(method)} - {*SYMBOLS})


def _dials(results: Results) -> list[str]:
    """The settings that have a column of their own: λ and ρ, and γ where captions are guided."""
    guided = any("gamma" in point.settings for point in results.points)
    return [name for name in SYMBOLS if guided or name != "gamma"]


def point_cell(point: Point | None, digits: int, *keys: str) -> str:
    """The test split's number at `keys`, mean ± deviation over the seeds, or a dash."""
    return MISSING if point is None else number(point.mean("test", *keys), digits, point.spread("test", *keys))


def _mean(point: Point | None, digits: int, *keys: str) -> str:
    return MISSING if point is None else number(point.mean("test", *keys), digits)


def _median(point: Point | None, *keys: str) -> str:
    """The median rank (averaged over seeds), without a decimal where it is whole."""
    value = None if point is None else point.mean("test", *keys, "median_rank")
    return number(value, 0 if value is not None and value == round(value) else 1)


def chosen_name(choice: Choice, protocols: Protocols) -> str:
    """The choice's method with the marks of how it was chosen and of its protocol."""
    mark = {Basis.BELOW: "*", Basis.UNMEASURED: "†"}.get(choice.basis, "")
    return choice.method + mark + (protocols.mark(choice.point.runs) if choice.point else "")


def _seeds(point: Point | None) -> str:
    return MISSING if point is None else str(len(point.runs))


def _language(results: Results) -> list[str]:
    """CIDEr always, the others where a run has them (a note says why one was not computed)."""
    return [
        name
        for name in LANGUAGE
        if name == "CIDEr" or any(run.value("test", "language", name) is not None for run in results.runs)
    ]


def _images(results: Results) -> str:
    """How many images the test gallery has, "400 or 800" where runs differ."""
    counts = sorted({int(n) for run in results.runs if (n := run.value("test", "images")) is not None})
    return " or ".join(f"{n:,}" for n in counts) or "an unknown number of"


def _spread_note(choices: Sequence[Choice]) -> list[str]:
    several = any(choice.point and len(choice.point.runs) > 1 for choice in choices)
    return ["± is the standard deviation over the seeds."] if several else []


def _choice_notes(results: Results, choices: Sequence[Choice]) -> list[str]:
    others = other_settings(results)
    beside = [
        f"{choice.method} {', '.join(f'{name} = {setting(choice.point, name)}' for name in varied)}"
        for choice in choices
        if (varied := [name for name in results.varying(choice.method) if name in others])
    ]
    below = [choice.method for choice in choices if choice.basis is Basis.BELOW]
    unmeasured = [choice.method for choice in choices if choice.basis is Basis.UNMEASURED]
    notes = [f"Chosen in the same way: {'; '.join(beside)}."] if beside else []
    if below:
        notes.append(
            f"Marked *: no setting of {', '.join(below)} is natural enough, so its most natural one stands here."
        )
    if unmeasured:
        notes.append(
            f"Marked †: validation numbers of {', '.join(unmeasured)} are missing, so nothing was chosen by them."
        )
    return notes


def _not_computed(results: Results) -> list[str]:
    """One line a metric and reason, with the methods it holds for if not for all."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for run in results.runs:
        for name, reason in run.not_computed.items():
            methods = reasons.setdefault((name, reason), [])
            if run.method not in methods:
                methods.append(run.method)
    every = results.methods
    return [
        f"{name} was not computed" + ("" if methods == every else f" for {', '.join(methods)}") + f": {reason}"
        for (name, reason), methods in reasons.items()
    ]


def _readable(signature: str) -> str:
    return " | ".join(part.strip() for part in signature.split("|"))


def _letter(n: int) -> str:
    return chr(ord("A") + n) if n < 26 else f"A{n}"
