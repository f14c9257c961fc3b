"""Section of the report on gradient estimators, where they were measured."""

from __future__ import annotations

from pathlib import Path

from pipeline.gradients.report.gradient_tables import claim_panels, observatory_tables, plane_panels, read_observatory
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent


def build_observatory(content: ReportContent) -> SectionContent:
    """Return the accuracy of every estimator, and the effect of ρ."""
    if (path := content.input("observatory")) is None:
        return SectionContent()
    results = read_observatory(path)
    panels = {"plane": plane_panels(results), "claim": claim_panels(results)}
    return SectionContent(observatory_tables(results), panels, sources=[path])


OBSERVATORY = ReportSection(
    "observatory",
    "How a gradient crosses the channel",
    build_observatory,
    label="Estimators",
    template=Path(__file__).parent / "template" / "observatory.html",
)
