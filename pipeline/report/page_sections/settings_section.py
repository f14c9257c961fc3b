"""Settings of the report, evaluation protocols, and digests of the measurements."""

from __future__ import annotations

import json
from dataclasses import asdict

from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent


def build_settings(content: ReportContent) -> SectionContent:
    """Return the settings, the protocols, and the manifest of the prepared data."""
    values = {
        "protocols": sorted({run.protocol for run in content.results.runs}),
        "settings": asdict(content.settings),
        "manifest": json.dumps(content.manifest, indent=2, sort_keys=True, ensure_ascii=False),
    }
    return SectionContent(values=values, shown=True)


SETTINGS = ReportSection(
    "settings", "Settings and digests", build_settings, label="Settings", template=TEMPLATE / "settings.html"
)
