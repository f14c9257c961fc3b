"""Table of correlations or accuracies for a terminal of 100 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.errors import escape_line
from saywhich.calibrating.calibration import Calibration
from saywhich.calibrating.choice_accuracy import MEAN
from saywhich.calibrating.rank_correlation import Interval
from saywhich.judging.caption_scores import ScoreKey

LABEL, CELL, KIND = 44, 22, 7  # widths of columns, in characters


def format_calibration_lines(calibration: Calibration) -> Iterator[str]:
    """Yield the counts, and a row per score: 100 τ-b and 100 τ-c, or its accuracy on choices."""
    if calibration.accuracies:
        yield from _format_accuracies(calibration)
        return
    yield (
        f"{calibration.ratings:,} ratings of {calibration.captions:,} captions of {calibration.images:,} images; "
        "95 % intervals over images, in brackets"
    )
    yield ""
    yield "".ljust(LABEL) + "100 τ-b".rjust(CELL) + "100 τ-c".rjust(CELL) + "ratings".rjust(10)
    for key, tau in calibration.correlations.items():
        cells = _format_cell(tau.tau_b, tau.interval_b), _format_cell(tau.tau_c, tau.interval_c)
        yield _format_label(key) + "".join(cell.rjust(CELL) for cell in cells) + f"{tau.ratings:,}".rjust(10)


def _format_accuracies(calibration: Calibration) -> Iterator[str]:
    yield f"{calibration.ratings:,} choices between two captions of {calibration.images:,} images"
    yield "% of choices in which people's choice scores higher, by kind; 95 % interval over images, in brackets"
    yield ""
    kinds = [name for name in next(iter(calibration.accuracies.values())).values if name != MEAN]
    yield "".ljust(LABEL) + "".join(kind.rjust(KIND) for kind in kinds) + MEAN.rjust(CELL)
    for key, accuracy in calibration.accuracies.items():
        low, high = accuracy.intervals[MEAN]
        cells = "".join(f"{accuracy.values[kind]:.1f}".rjust(KIND) for kind in kinds)
        yield _format_label(key) + cells + f"{accuracy.values[MEAN]:.1f} [{low:.1f}, {high:.1f}]".rjust(CELL)


def _format_label(key: ScoreKey) -> str:
    label = escape_line(f"{key.name}, {key.judge}" if key.judge else key.name)
    return (label if len(label) < LABEL else f"{label[: LABEL - 2]}…").ljust(LABEL)


def _format_cell(value: float, interval: Interval | None) -> str:
    if math.isnan(value):
        return "–"
    interval_text = "" if interval is None else " [{:.1f}, {:.1f}]".format(*(100 * end for end in interval))
    return f"{100 * value:.1f}{interval_text}"
