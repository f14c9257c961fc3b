"""Extension point of the report: results that are no captions have a report of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipeline.analysis.judge_titles import Keys
from pipeline.analysis.results import Results
from pipeline.analysis.selection import ReportSettings


class ReportKind(NamedTuple):
    """A report on results that have `metric`.

    `write` takes the results, the prepared data, the images' folder, the output folder and the settings.
    """

    metric: Keys
    write: Callable[[Results, Path, Path | None, Path, ReportSettings], None]
