"""The figures and pictures as PNG files, for slides and for README files; equal input gives equal bytes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.reporting.figures import Panel, Series
from pipeline.reporting.gallery import Picture, Said

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The first seven: Okabe & Ito 2008, told apart with every common colour blindness; page.css lightens them in dark mode.
COLOURS = ("#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B58900", "#56B4E9", "#6A51A3", "#9E2A2B")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
CROWD = 8  # lines; with more of them only chosen settings are labelled
PICTURES = 12  # at most, in the gallery's file
BRACKETS = "in brackets the image's rank by the own listener"


def panels_png(panels: Sequence[Panel]) -> bytes:
    """The panels on common scales, at most three a row, one legend below."""
    from matplotlib.figure import Figure

    columns = len(panels) if len(panels) <= 3 else (len(panels) + 1) // 2
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(4.4 * columns, 5.5), 4.3 * rows), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for axes, panel in zip(grid.flat, panels, strict=False):
        axes.set_title(_plain(panel.title), fontsize=10, loc="left")
        axes.set_xlabel(panel.across)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if panel.empty:
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#666666")
        if panel.level:
            low, high = panel.level
            if high - low >= 0.05:
                axes.axhspan(low, high, color="#888888", alpha=0.18, linewidth=0)
            else:
                axes.axhline(low, color="#777777", linestyle=(0, (5, 3)), linewidth=1)
            axes.annotate(panel.level_words, (0.01, low), xycoords=("axes fraction", "data"), xytext=(0, -3),
                          textcoords="offset points", va="top", fontsize=8, color="#666666")  # fmt: skip
        for series in panel.series:
            _draw(axes, series, ends=len(panel.series) <= CROWD)
    for axes, panel in zip(grid[:, 0], panels[::columns], strict=False):
        axes.set_ylabel(panel.up)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if handles:
        fit = int(figure.get_figwidth() / (0.5 + 0.075 * max(map(len, labels))))  # inches: a line, a letter
        columns = max(1, min(len(labels), 5, fit))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        figure.set_figheight(figure.get_figheight() + 0.41 + 0.19 * -(-len(labels) // columns))
    return _png(figure)


def gallery_png(pictures: Sequence[Picture]) -> bytes:
    """The first pictures, three a row, and below each one caption a method, at its chosen setting."""
    from matplotlib.figure import Figure

    columns = 3
    pictures = pictures[:PICTURES]
    texts = [_lines(picture) for picture in pictures]
    rows = [range(n, min(n + columns, len(pictures))) for n in range(0, len(pictures), columns)] or [range(0)]
    heights = [2.6 + 0.155 * max((len(texts[n]) for n in row), default=0) + 0.35 for row in rows]
    figure = Figure(figsize=(4.0 * columns, sum(heights)), dpi=100)
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    figure.subplots_adjust(left=0.005, right=0.995, top=1, bottom=0, wspace=0.02, hspace=0)
    for axes in grid.flat:
        axes.axis("off")
    if pictures:
        figure.text(0.995, 0.1 / sum(heights), BRACKETS, ha="right", fontsize=7.5, color="#666666")
    for y, (row, height) in enumerate(zip(rows, heights, strict=True)):
        for x, n in enumerate(row):
            axes = grid[y, x]
            photo = axes.inset_axes((0, 1 - 2.7 / height, 1, 2.6 / height))
            _photo(photo, pictures[n])
            _text(axes, 0, 1 - 2.76 / height, "\n".join(texts[n]), 7.5)
    return _png(figure)


def along_png(picture: Picture, said: Sequence[Said]) -> bytes:
    """One picture, and beside it what one method says of it along λ, the most discriminative first."""
    from matplotlib.figure import Figure

    texts = [_wrapped(f"{words.setting} {_rank(words)}: {_plain(words.caption or '–')}", 70) for words in said]
    texts.append(_wrapped(f"a person: {_plain(picture.text)}", 70))
    lines = [line for text in texts for line in (*text, "")]
    height = max(2.7, 0.18 * (len(lines) + 2) + 0.3)
    figure = Figure(figsize=(9.6, height), dpi=150)
    photo, words = figure.subplots(1, 2, width_ratios=(1, 1.7))
    figure.subplots_adjust(left=0.01, right=0.99, top=0.97, bottom=0.03, wspace=0.03)
    _photo(photo, picture)
    words.axis("off")
    _text(words, 0, 1, "\n".join([f"{_plain(said[0].line)}, {BRACKETS}", "", *lines]), 9)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    """The figure as PNG without version or date inside."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _draw(axes: Any, series: Series, ends: bool) -> None:
    from matplotlib.patheffects import withStroke

    style = series.style
    colour, marker = COLOURS[style.colour % len(COLOURS)], MARKERS[style.marker % len(MARKERS)]
    xs, ys = [spot.x for spot in series.spots], [spot.y for spot in series.spots]
    axes.plot(
        xs,
        ys,
        "--" if style.dashed else "-",
        color=colour,
        marker=marker,
        markersize=6,
        linewidth=1.6,
        label=_plain(series.label),
    )
    for n, spot in enumerate(series.spots):
        if spot.bars:
            left, right, low, high = spot.bars
            axes.plot([left, right], [spot.y, spot.y], color=colour, linewidth=0.9, marker="|", markersize=4)
            axes.plot([spot.x, spot.x], [low, high], color=colour, linewidth=0.9, marker="_", markersize=4)
        if spot.chosen:
            axes.plot(spot.x, spot.y, "o", markersize=13, markerfacecolor="none", markeredgecolor=colour)
        if spot.tag and (spot.chosen or (ends and n == len(series.spots) - 1)):
            axes.annotate(spot.tag, (spot.x, spot.y), xytext=(2, 8), textcoords="offset points", fontsize=7,
                          color=colour, path_effects=[withStroke(linewidth=2.5, foreground="white")])  # fmt: skip


def _photo(axes: Any, picture: Picture) -> None:
    axes.imshow(picture.image)
    axes.set_anchor("NW")
    axes.axis("off")


def _text(axes: Any, x: float, y: float, text: str, size: float) -> None:
    axes.text(x, y, text, transform=axes.transAxes, va="top", fontsize=size, linespacing=1.3)


def _lines(picture: Picture) -> list[str]:
    """What stands below a picture, wrapped."""
    said = [f"a person: {_plain(picture.text)}"]
    said += [
        f"{_plain(words.line)} {_rank(words)}: {_plain(words.caption or '–')}"
        for words in picture.said
        if "chosen" in words.views
    ]
    return [line for text in said for line in _wrapped(text, 62)]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="   ")


def _rank(words: Said) -> str:
    rank = words.ranks.get("own")
    return f"[{'–' if rank is None else rank}]"


def _plain(text: str) -> str:
    """Matplotlib would take a dollar sign for mathematics."""
    return text.replace("$", r"\$")
