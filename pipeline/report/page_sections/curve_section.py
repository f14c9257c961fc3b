"""Recall against each metric of naturalness, one panel per judge."""

from __future__ import annotations

from pipeline.report.drawing import draw_panels_png
from pipeline.report.figures import build_curve_panels
from pipeline.report.number_files import format_curve_csv
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent
from pipeline.report.result_tables import build_runs_table


def build_curves(content: ReportContent) -> SectionContent:
    """Return a figure per metric, and a warning if the runs have different protocols."""
    panels = {name: build_curve_panels(content.results, content.choices, name) for name in content.metrics}
    return SectionContent(
        panels=panels,
        files={
            "curve.csv": format_curve_csv(content.results),
            "curve.png": draw_panels_png(panels[content.settings.metric]),
        },
        values={"warning": build_runs_table(content.results, content.choices).warning},
    )


CURVE = ReportSection(
    "curve",
    "Discriminability and naturalness",
    build_curves,
    label="All judges",
    template=TEMPLATE / "curves.html",
)
