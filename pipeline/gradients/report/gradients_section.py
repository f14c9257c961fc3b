"""Section of the report on gradient estimators, if they were measured."""

from __future__ import annotations

from pathlib import Path

from pipeline.gradients.report.gradient_tables import (
    build_claim_panels,
    build_gradients_tables,
    build_plane_panels,
    read_gradients,
)
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent


def build_gradients_section(content: ReportContent) -> SectionContent:
    """Return tables and figures of each estimator's accuracy and of the effect of ρ, if estimators were measured."""
    if (path := content.find_input("gradients")) is None:
        return SectionContent()
    results = read_gradients(path)
    panels = {"plane": build_plane_panels(results), "claim": build_claim_panels(results)}
    return SectionContent(build_gradients_tables(results), panels, sources=[path])


GRADIENTS = ReportSection(
    "gradients",
    "Accuracy of gradient estimators",
    build_gradients_section,
    label="Estimators",
    template=Path(__file__).parent / "template" / "gradients.html",
)
