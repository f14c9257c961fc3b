"""Recall by other listeners and on human captions, which shows whether a listener adapted to its speaker."""

from __future__ import annotations

from pipeline.report.figures import build_drift_panel
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent
from pipeline.report.result_tables import build_drift_table, build_human_table


def build_judges(content: ReportContent) -> SectionContent:
    """Return the drift of each method's listener, and the recall of all judges on human captions."""
    panel = build_drift_panel(content.results, content.choices)
    tables = [build_drift_table(content.results, content.choices), build_human_table(content.results, content.choices)]
    return SectionContent(list(filter(None, tables)), {"drift": [panel] if panel else []}, shown=True)


JUDGES = ReportSection(
    "judges",
    "Other listeners and human captions",
    build_judges,
    label="Listeners",
    template=TEMPLATE / "judges.html",
)
