"""Main result on the report's first screen: a sentence on recall by the last judge, and a small table."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.analysis.bootstrap import Resamples, compute_interval
from pipeline.analysis.judge_titles import HARD_RECALL
from pipeline.analysis.results import Results
from pipeline.analysis.selection import Choice, SelectionBasis
from pipeline.report.method_names import replace_method_names
from pipeline.report.tables import (
    Table,
    fill_table,
    format_number,
    format_sign,
    make_chosen_rows,
    make_language_column,
    make_metric_column,
    remove_protocol_notes,
)

SUCCESS = {
    HARD_RECALL: "ranks the right image first in the hard gallery",
    "R@1": "ranks the right image first among {images:,}",
    "R@5": "ranks the right image among the first five of {images:,}",
    "R@10": "ranks the right image among the first ten of {images:,}",
}


def choose_headline_pair(
    results: Results, choices: Sequence[Choice], control: str
) -> tuple[Choice | None, Choice | None]:
    """Return the control's choice, and the best choice of another method by the last judge on validation.

    A missing choice is None. Frozen speakers are excluded. A method below the floor of CIDEr counts only where all
    others are below it, because ungrammatical captions may have a high recall.
    """
    keys = results.score_keys(results.first_and_last_judge[-1])
    control_choice = next((choice for choice in choices if choice.method == control and choice.point), None)
    others = [c for c in choices if c.method != control and c.point and c.point.runs[0].frozen is None]
    scored = [
        ((c.basis is not SelectionBasis.BELOW, value), c)
        for c in others
        if c.point and (value := c.point.mean("val", *keys)) is not None
    ]
    return control_choice, max(scored, key=lambda each: each[0])[1] if scored else None


def compose_headline_sentence(
    results: Results,
    choices: Sequence[Choice],
    control: str,
    samples: Resamples | None,
    references: str = "human captions",
) -> str:
    """Return the main result in one sentence with its numbers on the test split; "" where a method or score is missing.

    A dash replaces a missing CIDEr. Without `samples`, the sentence has no interval. `references` names CIDEr's
    reference captions.
    """
    control_choice, best = choose_headline_pair(results, choices, control)
    judge = results.judges[results.first_and_last_judge[-1]]
    keys, images = results.score_keys(judge.name), int(max(results.values("images"), default=0))
    if control_choice is None or best is None or control_choice.point is None or best.point is None:
        return ""
    score, control_score = best.point.mean("test", *keys), control_choice.point.mean("test", *keys)
    if score is None or control_score is None:
        return ""
    success = SUCCESS[results.score].format(images=images)
    resampled_means = samples.mean([best.point, control_choice.point], *keys) if samples else None
    interval_text = ""
    if resampled_means is not None:
        low, high = compute_interval(resampled_means[:, 0] - resampled_means[:, 1])
        interval_text = f", 95 % interval {format_sign(f'{low:+.1f}')} to {format_sign(f'{high:+.1f}')}"
        interval_text += ", so it may be chance" if low <= 0 <= high else ""
    ciders = [
        format_number(choice.point.mean("test", "language", "CIDEr"), 3)
        for choice in (best, control_choice)
        if choice.point
    ]
    return (
        f"With captions by {replace_method_names(best.method)}, the {judge.title.lower()} {success} in {score:.1f} % "
        f"of cases, with captions by {replace_method_names(control_choice.method)} in {control_score:.1f} % "
        f"(difference {format_sign(f'{score - control_score:+.1f}')} points{interval_text}); "
        f"CIDEr, the similarity to {references}, is {ciders[0]} and {ciders[1]}."
    )


def build_headline_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Return a table of method, CIDEr, and the score by the first and the last judge."""
    columns = [make_language_column("CIDEr")]
    columns += [
        make_metric_column(f"{results.score}, {results.judges[j].title.lower()}", results.score_keys(j))
        for j in results.first_and_last_judge
    ]
    caption = "At the λ chosen on validation, test split; recall in %"
    return remove_protocol_notes([fill_table("headline-table", caption, make_chosen_rows(choices), columns)])[0]
