"""Training budget of each method, and learning curves against the budget."""

from __future__ import annotations

from pipeline.report.budget_tables import average_budgets, build_budget_table, build_learning_panels, format_budget_csv
from pipeline.report.drawing import draw_panels_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.training_histories import format_training_csv


def build_budget(content: ReportContent) -> SectionContent:
    """Return the table of budgets, and learning curves against captions drawn and processor seconds.

    training.csv has the budgets, validation metrics and rewards; `dvc plots` draws the metrics against steps.
    """
    by_method, histories = average_budgets(content.choices, content.trainings), content.histories
    table, panels = build_budget_table(by_method), build_learning_panels(content.results, histories)
    return SectionContent(
        [table] if table else [],
        {"learning": panels},
        {
            "budget.csv": format_budget_csv(by_method) if table else None,
            "training.csv": format_training_csv(histories) if histories else None,
            "learning.png": draw_panels_png(panels) if panels else None,
        },
    )


BUDGET = ReportSection(
    "budget",
    "Training budget",
    build_budget,
    explanation="Methods are comparable at equal budgets. The number of steps is not enough, because a method may draw "
    "several captions for each image.",
    summary="",
)
