"""All metrics and judges at the chosen settings, in both directions of retrieval."""

from __future__ import annotations

from pipeline.analysis.judge_titles import TEXT
from pipeline.report.comparison_tables import build_compact_comparison
from pipeline.report.number_files import format_markdown
from pipeline.report.photo_summary import format_photo_summary
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent
from pipeline.report.result_tables import build_compact_tables, build_results_table


def build_results(content: ReportContent) -> SectionContent:
    """Return the tables of both directions, compact tables for the terminal, and the summary of a run on few photos."""
    results, choices, samples = content.results, content.choices, content.comparison.samples
    compact = [*build_compact_tables(results, choices, samples), *build_compact_comparison(content.comparison)]
    return SectionContent(
        [build_results_table(results, choices, TEXT, samples), build_results_table(results, choices, "image_to_text")],
        files={
            "table.md": format_markdown(compact, content.rule, content.training_failures),
            "photos.txt": format_photo_summary(content),
        },
    )


RESULTS = ReportSection(
    "results", "Results at the chosen λ", build_results, label="Results", template=TEMPLATE / "results.html"
)
