"""PNG sheets of the gallery's pictures with their captions, for slides and README files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.analysis.judge_titles import JudgeTitle
from pipeline.report.drawing import encode_png
from pipeline.report.gallery import GalleryCaption, GalleryPicture
from pipeline.report.method_names import replace_method_names
from pipeline.report.plot_axes import escape_math
from pipeline.report.plot_elements import SOFT
from pipeline.report.shared_captions import SharedCaptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PICTURES = 12  # maximum on a sheet


def draw_gallery_png(pictures: Sequence[GalleryPicture], *judges: JudgeTitle) -> bytes:
    """Draw the first MAX_PICTURES pictures, three per row, each with the chosen captions and the ranks by `judges`."""
    from matplotlib.figure import Figure

    pictures, columns, size = pictures[:MAX_PICTURES], 3, 7.5
    texts = [_list_lines(picture, judges, 62) for picture in pictures]
    rows = [range(n, min(n + columns, len(pictures))) for n in range(0, len(pictures), columns)] or [range(0)]
    heights = [2.6 + 0.0207 * size * max((len(texts[n]) for n in row), default=0) + 0.35 for row in rows]
    figure = Figure(figsize=(4.0 * columns, sum(heights)), dpi=100)
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    figure.subplots_adjust(left=0.005, right=0.995, top=1, bottom=0, wspace=0.02, hspace=0)
    for axes in grid.flat:
        axes.axis("off")
    if pictures:
        figure.text(0.995, 0.1 / sum(heights), _explain_brackets(judges), ha="right", fontsize=size, color=SOFT)
    for n, (picture, lines) in enumerate(zip(pictures, texts, strict=True)):
        axes, height = grid.flat[n], heights[n // columns]
        _draw_photo(axes.inset_axes((0, 1 - 2.7 / height, 1, 2.6 / height)), picture)
        _draw_text(axes, 1 - 2.76 / height, lines, size)
    return encode_png(figure)


def draw_pairs_png(shared: SharedCaptions) -> bytes:
    """Draw the pairs, two per row: two images, the control's caption of both, and the other method's caption of each.

    The text below the pairs states how they were drawn, and counts the changes of ranks.
    """
    from matplotlib.figure import Figure

    control, other = (escape_math(replace_method_names(name)) for name in (shared.control, shared.other))
    texts = [
        (
            _wrap(f"{control}, for both: {escape_math(pair[0].control.caption or '–')}", 84),
            [
                _wrap(f"{other} [{example.other_rank}]: {escape_math(example.other.caption or '–')}", 40)
                for example in pair
            ],
        )
        for pair in shared.pairs
    ]
    rows = [texts[n : n + 2] for n in range(0, len(texts), 2)]
    heights = [
        2.95 + 0.19 * max(len(shared_lines) + max(map(len, caption_lines)) for shared_lines, caption_lines in row)
        for row in rows
    ]
    footer = _wrap(f"{shared.sentence} The image's rank by this judge is in brackets.", 165)
    footer_height = 0.19 * len(footer) + 0.2
    figure = Figure(figsize=(12.4, sum(heights) + footer_height), dpi=100)
    grid = figure.subplots(len(rows), 4, squeeze=False, height_ratios=heights)
    figure.subplots_adjust(
        left=0.005, right=0.995, top=1, bottom=footer_height / (sum(heights) + footer_height), wspace=0.03, hspace=0
    )
    for axes in grid.flat:
        axes.axis("off")
    for n, (pair, (shared_lines, caption_lines)) in enumerate(zip(shared.pairs, texts, strict=True)):
        height = heights[n // 2]
        for k, example in enumerate(pair):
            axes = grid[n // 2, 2 * (n % 2) + k]
            _draw_photo(axes.inset_axes((0, 1 - 2.7 / height, 1, 2.6 / height)), example.picture)
            if k == 0:
                _draw_text(axes, 1 - 2.76 / height, shared_lines, 9)
            _draw_text(axes, 1 - (2.78 + 0.19 * len(shared_lines)) / height, caption_lines[k], 9)
    figure.text(0.005, 0.1 / (sum(heights) + footer_height), "\n".join(footer), va="bottom", fontsize=9, color=SOFT)
    return encode_png(figure)


def draw_lambda_example_png(picture: GalleryPicture, captions: Sequence[GalleryCaption], judge: JudgeTitle) -> bytes:
    """Draw one picture and, to its right, `captions` in the given order, then the first human caption."""
    from matplotlib.figure import Figure

    texts = [_wrap(_format_caption(entry.setting, entry, [judge]), 70) for entry in captions]
    texts.append(_wrap(f"{picture.annotator}: {escape_math(picture.text)}", 70))
    lines = [line for text in texts for line in (*text, "")]
    figure = Figure(figsize=(9.6, max(2.7, 0.18 * (len(lines) + 2) + 0.3)), dpi=150)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.7))
    figure.subplots_adjust(left=0.01, right=0.99, top=0.97, bottom=0.03, wspace=0.03)
    _draw_photo(left, picture)
    right.axis("off")
    heading = f"{escape_math(replace_method_names(captions[0].line))}, {_explain_brackets([judge])}"
    _draw_text(right, 1, [heading, "", *lines], 9)
    return encode_png(figure)


def _draw_photo(axes: Axes, picture: GalleryPicture) -> None:
    axes.imshow(picture.image)
    axes.set_anchor("NW")
    axes.axis("off")


def _draw_text(axes: Axes, y: float, lines: Sequence[str], size: float) -> None:
    axes.text(0, y, "\n".join(lines), transform=axes.transAxes, va="top", fontsize=size, linespacing=1.3)


def _list_lines(picture: GalleryPicture, judges: Sequence[JudgeTitle], width: int) -> list[str]:
    """Return the lines below a picture."""
    texts = [f"{picture.annotator}: {escape_math(picture.text)}"]
    texts += [
        _format_caption(escape_math(replace_method_names(entry.line)), entry, judges)
        for entry in picture.captions
        if "chosen" in entry.views
    ]
    return [line for text in texts for line in _wrap(text, width)]


def _format_caption(source: str, entry: GalleryCaption, judges: Sequence[JudgeTitle]) -> str:
    ranks = [entry.ranks.get(judge.name) for judge in judges]
    brackets = ", ".join("–" if rank is None else str(rank) for rank in ranks)
    return f"{source} [{brackets}]: {escape_math(entry.caption or '–')}"


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="   ")


def _explain_brackets(judges: Sequence[JudgeTitle]) -> str:
    return f"in brackets: the image's rank by the {', the '.join(judge.title.lower() for judge in judges)}"
