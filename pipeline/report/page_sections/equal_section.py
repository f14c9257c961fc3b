"""Every method at equal naturalness and at equal discriminability."""

from __future__ import annotations

from pipeline.report.comparison_tables import equal_tables
from pipeline.report.number_files import comparison_csv
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.tables import notes_once

EXPLANATION = """\
Interpolated on each method's curve between its measured settings, never extrapolated: a curve that ends before the \
value has a
dash, one that begins beyond it a lower bound (§)."""


def build_equal(content: ReportContent) -> SectionContent:
    """Return the tables of all fixed values of CIDEr and of recall."""
    tables, files = equal_tables(content.comparison), {"comparison.csv": comparison_csv(content.comparison)}
    return SectionContent(tables, files=files, page_tables=notes_once(tables))


EQUAL = ReportSection(
    "equal",
    "At equal naturalness and at equal discriminability",
    build_equal,
    label="At equal values",
    explanation=EXPLANATION,
    summary="Every method at equal values",
)
