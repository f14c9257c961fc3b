"""Reward hacking: captions rewarded by a fixed retriever, as scored by that retriever and by another judge."""

from __future__ import annotations

from pipeline.report.drawing import draw_panels_png
from pipeline.report.pictures import draw_gallery_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent
from pipeline.report.reward_hacking_examples import build_reward_hacking_pictures, select_reward_hacking_examples
from pipeline.report.reward_tables import (
    build_discriminator_panels,
    build_rewarded_table,
    build_training_panels,
    select_rewarded_histories,
)


def build_rewarded(content: ReportContent) -> SectionContent:
    """Return the table of rewarded captions, training curves, and examples of reward hacking."""
    results, choices, retriever = content.results, content.choices, content.retriever
    control, histories = content.settings.control, select_rewarded_histories(content.histories) if retriever else {}
    table = build_rewarded_table(results, choices, retriever, control) if retriever else None
    training, discriminator = build_training_panels(results, histories), build_discriminator_panels(results, histories)
    judges = [results.judges[name] for name in (retriever, results.first_and_last_judge[-1]) if name in results.judges]
    pictures = []
    if retriever and content.images_root:
        captions = select_reward_hacking_examples(results, choices, histories, retriever, control)
        pictures = build_reward_hacking_pictures(captions, control, content.load_pictures)
    return SectionContent(
        [table] if table else [],
        {"training": training, "discriminator": discriminator},
        {
            "training.png": draw_panels_png(training) if training else None,
            "hacked.png": draw_gallery_png(pictures, *judges) if pictures else None,
        },
        {"hacked": pictures, "judges": [judge.name for judge in judges]},
        shown=table is not None,
    )


REWARDED = ReportSection(
    "rewarded", "Reward hacking", build_rewarded, label="Reward", template=TEMPLATE / "rewarded.html"
)
