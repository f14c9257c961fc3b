"""Registered parts of the report, of the core and of slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.report.gallery import ReadScenes, no_scenes
from pipeline.report.report_kind import ReportKind
from pipeline.report.report_section import ReportSection
from pipeline.report.sections import SECTIONS


@dataclass(frozen=True)
class ReportParts:
    """The sections of the page, the reader of drawn scenes, and the reports of results that are no captions.

    `simulated` returns whether a grammar wrote the captions of a prepared data set.
    """

    sections: Sequence[ReportSection] = SECTIONS
    scenes: ReadScenes = no_scenes
    simulated: Callable[[Path], bool] = lambda prepared: False
    kinds: Sequence[ReportKind] = ()
