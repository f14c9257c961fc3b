"""Sections of the report, in the order of tables.md and of the page; subsections appear inside their sections."""

from __future__ import annotations

from pipeline.report.page_sections.budget_section import BUDGET
from pipeline.report.page_sections.captions_section import CAPTIONS
from pipeline.report.page_sections.cross_play_section import CROSS_PLAY
from pipeline.report.page_sections.curve_section import CURVE
from pipeline.report.page_sections.equal_section import EQUAL
from pipeline.report.page_sections.galleries_section import GALLERIES
from pipeline.report.page_sections.gallery_section import GALLERY
from pipeline.report.page_sections.headline_section import HEADLINE
from pipeline.report.page_sections.judges_section import JUDGES
from pipeline.report.page_sections.lambda_example_section import LAMBDA_EXAMPLE
from pipeline.report.page_sections.results_section import RESULTS
from pipeline.report.page_sections.rewarded_section import REWARDED
from pipeline.report.page_sections.rho_section import RHO
from pipeline.report.page_sections.runs_section import RUNS
from pipeline.report.page_sections.settings_section import SETTINGS
from pipeline.report.report_section import ReportSection

SECTIONS: tuple[ReportSection, ...] = (
    HEADLINE,
    GALLERY,
    CURVE,
    RESULTS,
    BUDGET,
    EQUAL,
    RHO,
    JUDGES,
    REWARDED,
    CROSS_PLAY,
    GALLERIES,
    CAPTIONS,
    LAMBDA_EXAMPLE,
    RUNS,
    SETTINGS,
)
