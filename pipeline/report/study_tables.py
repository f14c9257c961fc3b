"""What raters said: the tables of the human evaluation, as the PSST paper's Tables 4 and 5, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.analysis.compare import REFERENCE, holm
from pipeline.report.names import published
from pipeline.report.tables import Column, Table, number, signed
from pipeline.study.answers import Answers, read_answers
from pipeline.study.design import NATURALNESS, PEOPLE, RETRIEVAL, Task
from pipeline.study.majority import Share, Verdict, agreement, differ, preferences, verdicts
from pipeline.study.played import Played, found, read_played

ANSWERS = "answers"  # the folder of a study where the report looks for them


def study_tables(study: Path, paths: Sequence[Path]) -> list[Table]:
    """The tables of the answers in `paths` to the questions of the folder `study`, of each task that has votes.

    Rounds of the game, which need no study, have a table of their own.
    """
    if games := read_played(paths):
        return [_game_table(games)]
    answers = read_answers(study, paths)
    return [table for table in (_retrieval_table(answers), _naturalness_table(answers)) if table]


def _game_table(games: Sequence[Played]) -> Table:
    def percent(each: Played, who: str) -> str:
        value, low, high = found(getattr(each, who))
        return f"{value:.1f} [{low:.1f}, {high:.1f}]"

    columns = [Column(name) for name in ("rounds", "photos", "you, %", "the listener, %", "p", "your seconds")]
    rows: list[list[str]] = []
    for each in games:
        both = [percent(each, who) for who in ("person", "listener")]
        counted = [str(len(each.person)), f"{each.photos:.1f}"]
        rows.append([each.model, *counted, *both, _p(each.p), f"{each.seconds:.1f}"])
    notes = [
        "Right photos, in percent, with exact 95% intervals over rounds; p: McNemar's exact test of person against "
        "listener on the same rounds; photos: in a round, the mean; seconds: the median."
    ]
    return Table(
        "game", "Who finds the photo that a caption is of?", [Column("Model", text=True), *columns], rows, notes
    )


def _retrieval_table(answers: Answers) -> Table | None:
    told = answers.key.tasks[RETRIEVAL]
    found = verdicts(answers.of(RETRIEVAL), [*told.methods, PEOPLE])
    if not found:
        return None
    base = next((each for each in found if each.method == REFERENCE), found[0])
    others = [each for each in found if each is not base]
    gaps = {each.method: differ(each, base) for each in others}
    p_values = dict(zip(gaps, holm([p for _, p in gaps.values()]), strict=True))
    chance = dict(zip((each.method for each in found), holm([each.p for each in found]), strict=True))
    name = published(base.method)
    columns = [
        Column("pairs", show=lambda each: str(each.images)),
        Column("votes", show=lambda each: f"{each.votes.sum():.0f}"),
        Column("majority right, %", show=lambda each: _shown(each.by_majority)),
        Column("p, chance", show=lambda each: _p(chance[each.method])),
        Column(f"− {name}", show=lambda each: _shown(gaps[each.method][0], sign=True) if each is not base else None),
        Column("p", show=lambda each: _p(p_values[each.method]) if each is not base else None),
        Column("single vote right, %", show=lambda each: _shown(each.by_vote)),
        Column("votes alike", show=lambda each: signed(number(each.alikeness, 2))),
    ]
    caption = f"Which of two similar images is a caption of? Methods of similar {told.alike_in}, {told.at:.3f}"
    return _table("study_retrieval", caption, columns, found, answers, RETRIEVAL, "McNemar's exact test against it")


def _naturalness_table(answers: Answers) -> Table | None:
    told, reference = answers.key.tasks[NATURALNESS], answers.key.reference
    found = verdicts(answers.of(NATURALNESS), [method for method in told.methods if method != reference])
    if not found:
        return None
    scores = preferences(found)
    p_values = dict(zip(scores, holm([each.p for each in found]), strict=True))
    columns = [
        Column("images", show=lambda each: str(each.images)),
        Column("votes", show=lambda each: f"{each.votes.sum():.0f}"),
        Column("majority prefers it, %", show=lambda each: _shown(each.by_majority)),
        Column("p", show=lambda each: _p(p_values[each.method])),
        Column("minus that for the reference", show=lambda each: signed(f"{2 * each.by_majority.value - 100:+.1f}")),
        Column("single vote, %", show=lambda each: _shown(each.by_vote)),
        Column("Bradley–Terry score", show=lambda each: _shown(scores[each.method], 2, sign=True)),
        Column("votes alike", show=lambda each: signed(number(each.alikeness, 2))),
    ]
    caption = (
        f"Which of two captions is better written, the method's or that of {published(reference)}? "
        f"Methods of similar {told.alike_in}, {told.at:.1f}"
    )
    extra = "images on which both captions are equal are not asked"
    return _table("study_naturalness", caption, columns, found, answers, NATURALNESS, extra)


def _table(
    name: str,
    caption: str,
    columns: Sequence[Column],
    found: Sequence[Verdict],
    answers: Answers,
    task: Task,
    extra: str,
) -> Table:
    votes = answers.of(task)
    raters = len({vote.rater for vote in votes})
    notes = [
        f"{raters} raters; Krippendorff's α {number(agreement(votes), 2)}; [95% interval over resampled images]; p of "
        f"exact binomial tests of majorities, Holm-adjusted; {extra}; votes alike: the correlation of two votes on one "
        "image.",
        *answers.notes,
    ]
    show: list[Callable[[Verdict], str | None]] = [column.show for column in columns]
    rows = [[each.method, *(cell(each) or "–" for cell in show)] for each in found]
    return Table(name, caption, [Column("Method", text=True), *columns], rows, notes)


def _shown(share: Share, digits: int = 1, sign: bool = False) -> str:
    plus = "+" if sign else ""
    low, high = share.interval
    ends = [f"{value:{plus}.{digits}f}" for value in (share.value, low, high)]
    value, low_text, high_text = map(signed, ends)
    return f"{value} [{low_text}, {high_text}]"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
