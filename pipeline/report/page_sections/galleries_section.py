"""Recall in galleries smaller than the test split, and in the hard gallery."""

from __future__ import annotations

from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.result_tables import build_galleries_table


def build_galleries(content: ReportContent) -> SectionContent:
    """Return the table of recall in every measured gallery; no table where only the whole split was measured."""
    table = build_galleries_table(content.results, content.choices)
    return SectionContent([table] if table else [], shown=True)


GALLERIES = ReportSection("galleries", "", build_galleries, summary="In smaller galleries", parent="judges")
