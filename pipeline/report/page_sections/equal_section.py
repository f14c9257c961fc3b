"""Methods at equal naturalness and at equal discriminability."""

from __future__ import annotations

from pipeline.report.comparison_tables import build_equal_tables
from pipeline.report.number_files import format_comparison_csv
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.tables import drop_repeated_notes

EXPLANATION = """\
Values are interpolated on each method's curve between measured settings, and never extrapolated. A curve that ends \
before the value has a dash; a curve that begins beyond the value has a lower bound (§)."""


def build_equal(content: ReportContent) -> SectionContent:
    """Return the tables at all fixed values of CIDEr and of recall."""
    tables, files = (
        build_equal_tables(content.comparison),
        {"comparison.csv": format_comparison_csv(content.comparison)},
    )
    return SectionContent(tables, files=files, page_tables=drop_repeated_notes(tables))


EQUAL = ReportSection(
    "equal",
    "At equal naturalness and at equal discriminability",
    build_equal,
    label="At equal values",
    explanation=EXPLANATION,
    summary="Every method at equal values",
)
