"""Tables of scores for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.errors import escape_line
from saywhich.judging.caption_scores import BY_REFERENCES, KINDS, ScoreKey
from saywhich.judging.judgement import JudgedRow, Judgement

WIDTH = 100
LABEL, CELL = 35, 21  # columns of a score's name, and of a number with its interval
MISSING = "–"
REFERENCE_SCORES = {kind.name for kind in BY_REFERENCES}


def show_number(value: float, name: str) -> str:
    """Return a score's value with the decimals of its kind."""
    return f"{value:,.{KINDS[name].digits}f}"


def show_interval(interval: tuple[float, float] | None, name: str, signed: bool = False) -> str:
    """Return an interval as [low, high]; an empty text without an interval."""
    if interval is None:
        return ""
    sign = "+" if signed else ""
    return "[{}]".format(", ".join(f"{end:{sign},.{KINDS[name].digits}f}" for end in interval))


def format_judgement_lines(judgement: Judgement) -> Iterator[str]:
    """Yield the lines of a judgement: its heading, and tables of up to three rows of captions, a column each."""
    yield from format_heading_lines(judgement)
    rows = [*judgement.rows, *judgement.baselines]
    for first in range(0, len(rows), 3):
        part = rows[first : first + 3]
        yield ""
        yield " " * LABEL + "".join(shorten(row.name, CELL - 2).rjust(CELL) for row in part)
        for title, keys in group_scores(judgement):
            yield shorten(title, WIDTH)
            for key in keys:
                cells = [_format_cell(row, key).rjust(CELL) for row in part]
                yield f"  {key.name}".ljust(LABEL) + "".join(cells)


def format_heading_lines(judgement: Judgement) -> Iterator[str]:
    """Yield the number of images and captions, and if there are hard galleries, their rule and the unit of recalls."""
    counts = sorted({sum(map(len, row.captions)) for row in judgement.rows})
    captions = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    yield f"{len(judgement.files):,} images, {captions} captions; 95 % intervals over images, in brackets"
    if judgement.galleries.shape[1]:
        hard, recalls = (
            f"R@1 (hard): among {judgement.gallery_rule}",
            "recalls in %, from text to image by default",
        )
        line = escape_line(f"{hard}; {recalls}")
        yield from [line] if len(line) <= WIDTH else [shorten(hard, WIDTH), recalls]


def group_scores(judgement: Judgement) -> Iterator[tuple[str, list[ScoreKey]]]:
    """Yield the shown scores in groups, each with a title: by each judge, by references, and of the text."""
    keys = [key for key in judgement.keys if KINDS[key.name].shown]
    for judge in judgement.judges:
        yield f"by {judge}, among {len(judgement.files):,} images", [key for key in keys if key.judge == judge]
    text_keys = [key for key in keys if not key.judge]
    reference_keys = [key for key in text_keys if key.name in REFERENCE_SCORES]
    if reference_keys:
        yield "by references", reference_keys
    yield "of the text", [key for key in text_keys if key.name not in REFERENCE_SCORES]


def _format_cell(row: JudgedRow, key: ScoreKey) -> str:
    if key not in row.scores:
        return MISSING
    number = show_number(row.scores[key].value, key.name)
    return f"{number} {show_interval(row.compute_interval(key), key.name)}".rstrip()


def shorten(text: str, width: int) -> str:
    """Return a text in one line of at most `width` characters."""
    text = escape_line(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"
