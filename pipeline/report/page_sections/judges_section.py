"""Recall by other listeners and on human captions, which shows whether a listener adapted to its speaker."""

from __future__ import annotations

from pipeline.report.figures import drift_panel
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent
from pipeline.report.result_tables import drift_table, human_table


def build_judges(content: ReportContent) -> SectionContent:
    """Return the drift of each method's listener, and its recall on human captions."""
    panel = drift_panel(content.results, content.choices)
    tables = [drift_table(content.results, content.choices), human_table(content.results, content.choices)]
    return SectionContent(list(filter(None, tables)), {"drift": [panel] if panel else []}, shown=True)


JUDGES = ReportSection(
    "judges",
    "Other listeners and human captions",
    build_judges,
    label="Listeners",
    template=TEMPLATE / "judges.html",
)
