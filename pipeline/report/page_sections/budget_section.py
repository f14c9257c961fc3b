"""The budget of each method's training, and learning curves against it."""

from __future__ import annotations

from pipeline.report.budget_tables import budget_csv, budget_table, budgets, learning_panels
from pipeline.report.drawing import panels_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.report.training_histories import training_csv


def build_budget(content: ReportContent) -> SectionContent:
    """Return the table of budgets, and learning curves against captions drawn and processor seconds.

    training.csv has all numbers of the curves; `dvc plots` draws them against steps.
    """
    spent, histories = budgets(content.choices, content.trainings), content.histories
    table, panels = budget_table(spent), learning_panels(content.results, histories)
    return SectionContent(
        [table] if table else [],
        {"learning": panels},
        {
            "budget.csv": budget_csv(spent) if table else None,
            "training.csv": training_csv(histories) if histories else None,
            "learning.png": panels_png(panels) if panels else None,
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
