"""Sections of the report's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.report.plot_elements import PlotPanel
from pipeline.report.report_content import ReportContent
from pipeline.report.tables import Table

TEMPLATE = Path(__file__).parent / "template"


@dataclass(frozen=True)
class SectionContent:
    """Tables, figures and files of a section, and the `values` that its own template shows.

    `tables` are in tables.md and on the page; `page_tables`, if given, replace them on the page. `panels` maps the name
    of a figure to its panels. `files` maps the name of a file to its content; a file with the content None is
    removed. `sources` are further files whose digests the page shows. `shown` states whether the page shows the
    section. If `shown` is None, the page shows the section if it has a table or a panel.
    """

    tables: Sequence[Table] = ()
    panels: Mapping[str, Sequence[PlotPanel]] = field(default_factory=dict)
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    page_tables: Sequence[Table] | None = None
    sources: Sequence[Path] = ()
    shown: bool | None = None

    @property
    def on_page(self) -> bool:
        """Return whether the page shows the section."""
        return self.shown if self.shown is not None else bool(self.tables) or any(self.panels.values())


@dataclass(frozen=True)
class ReportSection:
    """Section of the page, or with `parent` a subsection of the section of that name.

    `name` is the HTML id, and `label` is the name in the page's navigation ("": the heading). The default template
    shows `explanation` (HTML without data), the figures, and the tables, which are folded below `summary` ("": not
    folded).
    """

    name: str
    heading: str
    build: Callable[[ReportContent], SectionContent]
    label: str = ""
    explanation: str = ""
    summary: str = "The numbers"
    parent: str = ""
    template: Path | None = None

    @property
    def template_file(self) -> Path:
        """Return the file of the section's template."""
        return self.template or TEMPLATE / ("subsection.html" if self.parent else "section.html")


def insert_sections(sections: Sequence[ReportSection], after: Mapping[str, ReportSection]) -> tuple[ReportSection, ...]:
    """Return `sections` with the sections of `after`, each inserted after the section named by its key.

    Raises ValueError for an unknown key.
    """
    groups = {each.name: (each, *([after[each.name]] if each.name in after else [])) for each in sections}
    if missing := after.keys() - groups.keys():
        raise ValueError(f"no section {', '.join(sorted(missing))} in the report: name one of {', '.join(groups)}")
    return tuple(each for group in groups.values() for each in group)
