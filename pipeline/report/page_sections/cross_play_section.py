"""Cross-play: recall of every speaker with every listener."""

from __future__ import annotations

from pipeline.analysis.results import read_results_json
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.result_tables import build_cross_play_table


def build_cross_play(content: ReportContent) -> SectionContent:
    """Return the table of cross-play, or no content without its file."""
    path = content.find_input("crossed")
    return (
        SectionContent([build_cross_play_table(read_results_json(path))], sources=[path]) if path else SectionContent()
    )


CROSS_PLAY = ReportSection(
    "crossed",
    "Every speaker with every listener",
    build_cross_play,
    explanation="A stronger colour means a higher recall. A column with one strong row belongs to a listener whose "
    "recall is high with one speaker only.",
    summary="The table",
    parent="judges",
)
