"""Table of correlations for a terminal of 100 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.errors import one_line
from saywhich.calibrating.calibration import Calibration
from saywhich.calibrating.rank_correlation import Interval

LABEL, CELL = 44, 22


def calibration_lines(found: Calibration) -> Iterator[str]:
    """Yield the counts, and a row per score with 100 τ-b and 100 τ-c."""
    yield (
        f"{found.ratings:,} ratings of {found.captions:,} captions of {found.images:,} images; 95 % intervals over "
        "images, in brackets"
    )
    yield ""
    yield "".ljust(LABEL) + "100 τ-b".rjust(CELL) + "100 τ-c".rjust(CELL) + "ratings".rjust(10)
    for key, each in found.correlations.items():
        label = one_line(f"{key.name}, {key.judge}" if key.judge else key.name)
        label = label if len(label) < LABEL else f"{label[: LABEL - 2]}…"
        cells = _cell(each.tau_b, each.interval_b).rjust(CELL) + _cell(each.tau_c, each.interval_c).rjust(CELL)
        yield label.ljust(LABEL) + cells + f"{each.ratings:,}".rjust(10)


def _cell(value: float, interval: Interval | None) -> str:
    if math.isnan(value):
        return "–"
    ends = "" if interval is None else " [{:.1f}, {:.1f}]".format(*(100 * end for end in interval))
    return f"{100 * value:.1f}{ends}"
