"""Table of correlations or accuracies for a terminal of 100 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.errors import one_line
from saywhich.calibrating.calibration import Calibration
from saywhich.calibrating.choice_accuracy import MEAN
from saywhich.calibrating.rank_correlation import Interval
from saywhich.judging.caption_scores import ScoreKey

LABEL, CELL, KIND = 44, 22, 7


def calibration_lines(found: Calibration) -> Iterator[str]:
    """Yield the counts, and a row per score: 100 τ-b and 100 τ-c, or its accuracy on choices."""
    if found.accuracies:
        yield from _accuracy_lines(found)
        return
    yield (
        f"{found.ratings:,} ratings of {found.captions:,} captions of {found.images:,} images; 95 % intervals over "
        "images, in brackets"
    )
    yield ""
    yield "".ljust(LABEL) + "100 τ-b".rjust(CELL) + "100 τ-c".rjust(CELL) + "ratings".rjust(10)
    for key, each in found.correlations.items():
        cells = _cell(each.tau_b, each.interval_b).rjust(CELL) + _cell(each.tau_c, each.interval_c).rjust(CELL)
        yield _label(key) + cells + f"{each.ratings:,}".rjust(10)


def _accuracy_lines(found: Calibration) -> Iterator[str]:
    yield f"{found.ratings:,} choices between two captions of {found.images:,} images"
    yield "% on which a score agrees, by kind of pair; 95 % interval over images, in brackets"
    yield ""
    kinds = [name for name in next(iter(found.accuracies.values())).values if name != MEAN]
    yield "".ljust(LABEL) + "".join(kind.rjust(KIND) for kind in kinds) + MEAN.rjust(CELL)
    for key, each in found.accuracies.items():
        low, high = each.intervals[MEAN]
        cells = "".join(f"{each.values[kind]:.1f}".rjust(KIND) for kind in kinds)
        yield _label(key) + cells + f"{each.values[MEAN]:.1f} [{low:.1f}, {high:.1f}]".rjust(CELL)


def _label(key: ScoreKey) -> str:
    label = one_line(f"{key.name}, {key.judge}" if key.judge else key.name)
    return (label if len(label) < LABEL else f"{label[: LABEL - 2]}…").ljust(LABEL)


def _cell(value: float, interval: Interval | None) -> str:
    if math.isnan(value):
        return "–"
    ends = "" if interval is None else " [{:.1f}, {:.1f}]".format(*(100 * end for end in interval))
    return f"{100 * value:.1f}{ends}"
