"""Recall against ρ, the share of captions or tokens that the listener receives as full distributions."""

from __future__ import annotations

from pipeline.report.comparison_tables import build_equal_tables, build_rho_tables
from pipeline.report.drawing import draw_panels_png
from pipeline.report.figures import build_rho_panels
from pipeline.report.number_files import format_rho_csv
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.tables import drop_repeated_notes

EXPLANATION = """\
ρ is the share of captions or of tokens that the listener receives as full distributions; the listener receives the \
others as sampled words. Bars: 95 % intervals over the test images."""


def build_rho(content: ReportContent) -> SectionContent:
    """Return the figure of recall against ρ, and a table for each method with several curves that differ only in ρ."""
    comparison = content.comparison
    panels, tables = build_rho_panels(content.results, comparison), build_rho_tables(comparison)
    earlier_notes = [note for table in build_equal_tables(comparison) for note in table.notes]
    return SectionContent(
        tables,
        {"rho": panels},
        {"rho.csv": format_rho_csv(comparison), "rho.png": draw_panels_png(panels) if panels else None},
        page_tables=drop_repeated_notes(tables, earlier_notes),
        shown=bool(panels),
    )


RHO = ReportSection("rho", "Recall against ρ", build_rho, label="ρ", explanation=EXPLANATION)
