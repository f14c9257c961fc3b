"""Cross-play: recall of every speaker with every listener."""

from __future__ import annotations

from pipeline.analysis.results import read_results_json
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.result_tables import build_crossed_table


def build_crossed(content: ReportContent) -> SectionContent:
    """Return the table of cross-play, or no content without its file."""
    path = content.input("crossed")
    return SectionContent([build_crossed_table(read_results_json(path))], sources=[path]) if path else SectionContent()


CROSSED = ReportSection(
    "crossed",
    "Every speaker with every listener",
    build_crossed,
    explanation="A stronger colour means a higher recall. A column with one strong row belongs to a listener whose "
    "recall is high with one speaker only.",
    summary="The table",
    within="judges",
)
