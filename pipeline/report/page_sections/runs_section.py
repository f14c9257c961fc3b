"""Every run with its settings and scores."""

from __future__ import annotations

from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent
from pipeline.report.result_tables import build_runs_table


def build_runs(content: ReportContent) -> SectionContent:
    """Return the table of all runs."""
    return SectionContent([build_runs_table(content.results, content.choices)])


RUNS = ReportSection("runs", "Every run", build_runs, template=TEMPLATE / "runs.html")
