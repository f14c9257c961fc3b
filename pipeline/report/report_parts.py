"""Parts of the report that the core and slices register."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.analysis.judge_titles import Keys
from pipeline.analysis.results import Results
from pipeline.analysis.selection import ReportSettings
from pipeline.report.gallery import ReadScenes, read_no_scenes
from pipeline.report.report_section import ReportSection
from pipeline.report.sections import SECTIONS


class ReportKind(NamedTuple):
    """Report on results that are not captions; the metric at the keys `metric` identifies these results.

    `write` takes the results, the prepared data, the images' folder, the output folder and the settings.
    """

    metric: Keys
    write: Callable[[Results, Path, Path | None, Path, ReportSettings], None]


@dataclass(frozen=True)
class ReportParts:
    """Sections of the page, the reader of drawn scenes, and the reports on results that are not captions.

    `simulated` returns whether a grammar wrote the captions of a prepared data set.
    """

    sections: Sequence[ReportSection] = SECTIONS
    scenes: ReadScenes = read_no_scenes
    simulated: Callable[[Path], bool] = lambda prepared: False
    kinds: Sequence[ReportKind] = ()
