"""One image with the captions of one method along λ."""

from __future__ import annotations

from pipeline.report.gallery import choose_example_line, choose_lambda_example
from pipeline.report.pictures import draw_lambda_example_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent


def build_lambda_example(content: ReportContent) -> SectionContent:
    """Build the section: the image with the most distinct captions along λ, and a figure of these captions."""
    example = choose_lambda_example(content.pictures, choose_example_line(content.results, content.choices))
    picture = draw_lambda_example_png(*example, content.results.first_judge) if example else None
    return SectionContent(files={"along.png": picture}, values={"along": example}, shown=example is not None)


LAMBDA_EXAMPLE = ReportSection(
    "along", "One image along λ", build_lambda_example, label="Along λ", template=TEMPLATE / "along.html"
)
