"""First screen: the main result in one chart, one example and one table, and the contents of the page."""

from __future__ import annotations

from dataclasses import replace

from pipeline.report.drawing import LARGE, SMALL, labelled_svg
from pipeline.report.figures import curve_panels
from pipeline.report.headline import headline_example, headline_table
from pipeline.report.pictures import pair_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent

SIZES = {"wide": LARGE, "narrow": SMALL}  # sizes of the chart, by its CSS class


def build_headline(content: ReportContent) -> SectionContent:
    """Return the chart of the last judge, the example and its sheet of pictures."""
    results, pictures = content.results, content.pictures
    panels = curve_panels(results, content.choices, content.settings.metric)
    last = next((panel for panel in panels if panel.name == results.ends[-1]), panels[0])
    chart = replace(last, title=f"By the {last.title.lower()}")
    judge, pair = results.judges[results.ends[-1]], [choice.method for choice in content.pair if choice]
    return SectionContent(
        files={"pair.png": pair_png(pictures, pair, judge) if pictures else None},
        values={
            "large": [(chart, labelled_svg(chart, name, size), size, name) for name, size in SIZES.items()],
            "example": headline_example(pictures, content.pair, judge.name),
            "summary": headline_table(results, content.choices),
        },
        shown=True,
    )


HEADLINE = ReportSection("first", "At a glance", build_headline, template=TEMPLATE / "headline.html")
