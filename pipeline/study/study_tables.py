"""Tables of the human evaluation, like Tables 4 and 5 of the PSST paper, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.analysis.comparison import REFERENCE, adjust_p_values
from pipeline.report.method_names import replace_method_names
from pipeline.report.tables import Table, TableColumn, fill_table, format_number, format_sign
from pipeline.study.design import HUMAN, NATURALNESS, RETRIEVAL, Task
from pipeline.study.game import GameResult, compute_success_rate, read_game
from pipeline.study.majority import (
    MajorityResult,
    ShareEstimate,
    compute_agreement,
    compute_majority_difference,
    count_majorities,
    estimate_preferences,
)
from pipeline.study.rater_answers import Answers, read_answers

ANSWERS = "answers"  # the report reads answers from this folder of a study
VOTES = TableColumn("votes", show=lambda result: f"{result.votes.sum():.0f}")
CORRELATION = TableColumn(
    "intraclass correlation", show=lambda result: format_sign(format_number(result.intraclass_correlation, 2))
)


def build_study_tables(study: Path, paths: Sequence[Path]) -> list[Table]:
    """Return a table for each task of the folder `study` that has votes in `paths`.

    If `paths` hold rounds of the game, which need no study, only their table is returned. Raises UserError as
    `read_game` and `read_answers` do.
    """
    if games := read_game(paths):
        return [_build_game_table(games)]
    answers = read_answers(study, paths)
    return [table for table in (_build_retrieval_table(answers), _build_naturalness_table(answers)) if table]


def _build_game_table(games: Sequence[GameResult]) -> Table:
    def format_rate(result: GameResult, field: str) -> str:
        value, low, high = compute_success_rate(getattr(result, field))
        return f"{value:.1f} [{low:.1f}, {high:.1f}]"

    columns = [TableColumn(name) for name in ("rounds", "photos", "person, %", "listener, %", "p", "seconds")]
    rows: list[list[str]] = []
    for result in games:
        rates = [format_rate(result, field) for field in ("person", "listener")]
        counts = [str(len(result.person)), f"{result.photos:.1f}"]
        rows.append([result.model, *counts, *rates, _format_p(result.p), f"{result.seconds:.1f}"])
    notes = [
        "Percentages are of right photos, with exact 95% intervals over rounds. p is McNemar's exact test of person "
        "against listener on the same rounds.",
        "*Photos* is the mean number in a round, and *seconds* is the person's median. Rounds that were saved twice "
        "count once.",
    ]
    return Table(
        "game",
        "Photos identified by their captions: people and the listener",
        [TableColumn("Model", text=True), *columns],
        rows,
        notes,
    )


def _build_retrieval_table(answers: Answers) -> Table | None:
    task = answers.key.tasks[RETRIEVAL]
    results = count_majorities(answers.get_votes(RETRIEVAL), [*task.methods, HUMAN])
    if not results:
        return None
    base = next((result for result in results if result.method == REFERENCE), results[0])
    others = [result for result in results if result is not base]
    differences = {result.method: compute_majority_difference(result, base) for result in others}
    p_values = dict(zip(differences, adjust_p_values([p for _, p in differences.values()]), strict=True))
    chance_p_values = dict(
        zip((result.method for result in results), adjust_p_values([result.p for result in results]), strict=True)
    )
    name = replace_method_names(base.method)
    columns = [
        TableColumn("pairs", show=lambda result: str(result.images)),
        VOTES,
        TableColumn("majority right, %", show=lambda result: _format_share(result.by_majority)),
        TableColumn("p, chance", show=lambda result: _format_p(chance_p_values[result.method])),
        TableColumn(
            f"− {name}",
            show=lambda result: _format_share(differences[result.method][0], sign=True) if result is not base else None,
        ),
        TableColumn("p", show=lambda result: _format_p(p_values[result.method]) if result is not base else None),
        TableColumn("single vote right, %", show=lambda result: _format_share(result.by_vote)),
        CORRELATION,
    ]
    caption = (
        "Which of two similar images does a caption describe? The methods have similar "
        f"{task.matched_metric} ({task.matched_value:.3f})"
    )
    note = f"The p beside a difference is of McNemar's exact test against {name}, Holm-adjusted, too."
    return _build_table("study_retrieval", caption, columns, results, answers, RETRIEVAL, note)


def _build_naturalness_table(answers: Answers) -> Table | None:
    task, reference = answers.key.tasks[NATURALNESS], answers.key.reference
    results = count_majorities(
        answers.get_votes(NATURALNESS), [method for method in task.methods if method != reference]
    )
    if not results:
        return None
    scores = estimate_preferences(results)
    p_values = dict(zip(scores, adjust_p_values([result.p for result in results]), strict=True))
    columns = [
        TableColumn("images", show=lambda result: str(result.images)),
        VOTES,
        TableColumn("majority for the method, %", show=lambda result: _format_share(result.by_majority)),
        TableColumn("p", show=lambda result: _format_p(p_values[result.method])),
        TableColumn(
            "method − reference, points",
            show=lambda result: format_sign(f"{2 * result.by_majority.value - 100:+.1f}"),
        ),
        TableColumn("single vote, %", show=lambda result: _format_share(result.by_vote)),
        TableColumn("Bradley–Terry score", show=lambda result: _format_share(scores[result.method], 2, sign=True)),
        CORRELATION,
    ]
    caption = (
        f"Which of two captions is better written, the method's or that of {replace_method_names(reference)}? "
        f"The methods have similar {task.matched_metric} ({task.matched_value:.1f})"
    )
    note = "Images on which both captions are equal have no question."
    return _build_table("study_naturalness", caption, columns, results, answers, NATURALNESS, note)


def _build_table(
    name: str,
    caption: str,
    columns: Sequence[TableColumn],
    results: Sequence[MajorityResult],
    answers: Answers,
    task: Task,
    note: str,
) -> Table:
    votes = answers.get_votes(task)
    raters = len({vote.rater for vote in votes})
    notes = [
        f"There are {raters} raters; Krippendorff's α is {format_number(compute_agreement(votes), 2)}. Brackets are "
        "95% intervals over resampled images.",
        f"p is of exact binomial tests of majorities, Holm-adjusted. {note}",
        "The intraclass correlation is that of two votes on one image.",
        *answers.notes,
    ]
    return fill_table(name, caption, [(result.method, (), result) for result in results], columns, notes)


def _format_share(share: ShareEstimate, digits: int = 1, sign: bool = False) -> str:
    plus = "+" if sign else ""
    low, high = share.interval
    texts = [f"{value:{plus}.{digits}f}" for value in (share.value, low, high)]
    value, low_text, high_text = map(format_sign, texts)
    return f"{value} [{low_text}, {high_text}]"


def _format_p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
