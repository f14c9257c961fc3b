"""Tables of the human evaluation, as the PSST paper's Tables 4 and 5, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.analysis.comparison import REFERENCE, holm_adjust
from pipeline.report.method_names import replace_method_names
from pipeline.report.tables import Table, TableColumn, format_number, typographic_sign
from pipeline.study.design import HUMAN, NATURALNESS, RETRIEVAL, Task
from pipeline.study.game import GameResult, read_game, success_rate
from pipeline.study.majority import (
    MajorityResult,
    ShareEstimate,
    agreement,
    majority_difference,
    majority_results,
    preferences,
)
from pipeline.study.rater_answers import Answers, read_answers

ANSWERS = "answers"  # the report reads answers from this folder of a study
VOTES = TableColumn("votes", show=lambda each: f"{each.votes.sum():.0f}")
ALIKE = TableColumn("votes alike", show=lambda each: typographic_sign(format_number(each.intraclass_correlation, 2)))


def study_tables(study: Path, paths: Sequence[Path]) -> list[Table]:
    """Return a table for each task of the folder `study` that has votes in `paths`.

    Rounds of the game, which need no study, have a table of their own.
    """
    if games := read_game(paths):
        return [_game_table(games)]
    answers = read_answers(study, paths)
    return [table for table in (_retrieval_table(answers), _naturalness_table(answers)) if table]


def _game_table(games: Sequence[GameResult]) -> Table:
    def percent(each: GameResult, picker: str) -> str:
        value, low, high = success_rate(getattr(each, picker))
        return f"{value:.1f} [{low:.1f}, {high:.1f}]"

    columns = [TableColumn(name) for name in ("rounds", "photos", "you, %", "the listener, %", "p", "your seconds")]
    rows: list[list[str]] = []
    for each in games:
        both = [percent(each, picker) for picker in ("person", "listener")]
        counted = [str(len(each.person)), f"{each.photos:.1f}"]
        rows.append([each.model, *counted, *both, _p(each.p), f"{each.seconds:.1f}"])
    notes = [
        "Right photos, in percent, with exact 95% intervals over rounds; p: McNemar's exact test of person against "
        "listener on the same rounds; photos: in a round, the mean; seconds: the median. Rounds that were saved twice "
        "count once."
    ]
    return Table(
        "game",
        "Photos identified by their captions: people and the listener",
        [TableColumn("Model", text=True), *columns],
        rows,
        notes,
    )


def _retrieval_table(answers: Answers) -> Table | None:
    task = answers.key.tasks[RETRIEVAL]
    results = majority_results(answers.get_votes(RETRIEVAL), [*task.methods, HUMAN])
    if not results:
        return None
    base = next((each for each in results if each.method == REFERENCE), results[0])
    others = [each for each in results if each is not base]
    gaps = {each.method: majority_difference(each, base) for each in others}
    p_values = dict(zip(gaps, holm_adjust([p for _, p in gaps.values()]), strict=True))
    chance = dict(zip((each.method for each in results), holm_adjust([each.p for each in results]), strict=True))
    name = replace_method_names(base.method)
    columns = [
        TableColumn("pairs", show=lambda each: str(each.images)),
        VOTES,
        TableColumn("majority right, %", show=lambda each: _format_share(each.by_majority)),
        TableColumn("p, chance", show=lambda each: _p(chance[each.method])),
        TableColumn(
            f"− {name}", show=lambda each: _format_share(gaps[each.method][0], sign=True) if each is not base else None
        ),
        TableColumn("p", show=lambda each: _p(p_values[each.method]) if each is not base else None),
        TableColumn("single vote right, %", show=lambda each: _format_share(each.by_vote)),
        ALIKE,
    ]
    caption = f"Which of two similar images is a caption of? Methods of similar {task.alike_in}, {task.at:.3f}"
    extra = f"p beside a difference: McNemar's exact test against {name}, Holm-adjusted, too"
    return _table("study_retrieval", caption, columns, results, answers, RETRIEVAL, extra)


def _naturalness_table(answers: Answers) -> Table | None:
    task, reference = answers.key.tasks[NATURALNESS], answers.key.reference
    results = majority_results(
        answers.get_votes(NATURALNESS), [method for method in task.methods if method != reference]
    )
    if not results:
        return None
    scores = preferences(results)
    p_values = dict(zip(scores, holm_adjust([each.p for each in results]), strict=True))
    columns = [
        TableColumn("images", show=lambda each: str(each.images)),
        VOTES,
        TableColumn("majority prefers it, %", show=lambda each: _format_share(each.by_majority)),
        TableColumn("p", show=lambda each: _p(p_values[each.method])),
        TableColumn(
            "minus that for the reference",
            show=lambda each: typographic_sign(f"{2 * each.by_majority.value - 100:+.1f}"),
        ),
        TableColumn("single vote, %", show=lambda each: _format_share(each.by_vote)),
        TableColumn("Bradley–Terry score", show=lambda each: _format_share(scores[each.method], 2, sign=True)),
        ALIKE,
    ]
    caption = (
        f"Which of two captions is better written, the method's or that of {replace_method_names(reference)}? "
        f"Methods of similar {task.alike_in}, {task.at:.1f}"
    )
    extra = "images on which both captions are equal are not asked"
    return _table("study_naturalness", caption, columns, results, answers, NATURALNESS, extra)


def _table(
    name: str,
    caption: str,
    columns: Sequence[TableColumn],
    results: Sequence[MajorityResult],
    answers: Answers,
    task: Task,
    extra: str,
) -> Table:
    votes = answers.get_votes(task)
    raters = len({vote.rater for vote in votes})
    notes = [
        f"Raters: {raters}; Krippendorff's α {format_number(agreement(votes), 2)}; "
        f"[95% interval over resampled images]; "
        f"p of exact binomial tests of majorities, Holm-adjusted; {extra}; "
        "votes alike: the correlation of two votes on one image.",
        *answers.notes,
    ]
    show: list[Callable[[MajorityResult], str | None]] = [column.show for column in columns]
    rows = [[each.method, *(cell(each) or "–" for cell in show)] for each in results]
    return Table(name, caption, [TableColumn("Method", text=True), *columns], rows, notes)


def _format_share(share: ShareEstimate, digits: int = 1, sign: bool = False) -> str:
    plus = "+" if sign else ""
    low, high = share.interval
    ends = [f"{value:{plus}.{digits}f}" for value in (share.value, low, high)]
    value, low_text, high_text = map(typographic_sign, ends)
    return f"{value} [{low_text}, {high_text}]"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
