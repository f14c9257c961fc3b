"""First screen: pairs of images with a shared caption, the main chart and table, and the page's navigation."""

from __future__ import annotations

from dataclasses import replace

from pipeline.report.drawing import LARGE, SMALL, draw_labelled_svg
from pipeline.report.figures import build_curve_panels
from pipeline.report.headline import build_headline_table
from pipeline.report.pictures import draw_pairs_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent

SIZES = {"wide": LARGE, "narrow": SMALL}  # sizes of the chart, by its CSS class


def build_headline(content: ReportContent) -> SectionContent:
    """Return pairs of images that share a caption of the control, the chart of the last judge, and the main table.

    The chart is of the first panel's judge if the last judge has no panel.
    """
    results = content.results
    panels = build_curve_panels(results, content.choices, content.settings.metric)
    last = next((panel for panel in panels if panel.name == results.first_and_last_judge[-1]), panels[0])
    chart = replace(last, title=f"By the {last.title.lower()}")
    return SectionContent(
        files={"pairs.png": draw_pairs_png(content.shared_captions) if content.shared_captions else None},
        values={
            "large": [(chart, draw_labelled_svg(chart, name, size), size, name) for name, size in SIZES.items()],
            "summary": build_headline_table(results, content.choices),
        },
        shown=True,
    )


HEADLINE = ReportSection("first", "At a glance", build_headline, template=TEMPLATE / "headline.html")
