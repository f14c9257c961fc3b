"""Properties of captions: truth of their claims, diversity and surface quality."""

from __future__ import annotations

from pipeline.report.caption_tables import build_caption_tables
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent


def build_captions_section(content: ReportContent) -> SectionContent:
    """Return the tables of measured properties of captions."""
    return SectionContent(build_caption_tables(content.results, content.choices))


CAPTIONS = ReportSection(
    "captions",
    "Properties of the captions",
    build_captions_section,
    label="Captions",
    summary="True claims, diversity and more",
)
