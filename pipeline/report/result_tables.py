"""The results at the chosen settings, people's captions through the same judges, and every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.analysis.judges import ADAPTED, TEXT, recall_by
from pipeline.analysis.results import LANGUAGE, MISSING, SYMBOLS, Point, Results, setting
from pipeline.analysis.selection import Basis, Choice
from pipeline.report.quality_tables import DIVERSITY
from pipeline.report.tables import Column, Table, dial, filled, measured, median, of_choices, ranks

CAPTIONS = ("words_per_caption", "distinct_captions", "repetition", "unfinished")
SEEDS = Column("seeds", "Chosen", lambda point: str(len(point.runs)))


def results_table(results: Results, choices: Sequence[Choice], direction: str = TEXT) -> Table:
    """Per method, at the λ chosen on validation: language metrics and recall by each judge on the test split."""
    forward = direction == TEXT
    columns = [*(dial(name, "Chosen") for name in _dials(results)), SEEDS]
    if forward:
        columns += [measured(name, ("language", name), 3, "Language metrics") for name in measured_language(results)]
    columns += [column for judge in results.judges.values() for column in ranks(judge.name, judge.title, direction)]
    what = "from caption to image" if forward else "from image to caption"
    return of_choices(
        "results" if forward else "reverse",
        f"Test split, {what}: recall in % of {_images(results)} images and median rank (med.)",
        choices,
        columns,
        [*_spread_note(choices), *_choice_notes(results, choices), *(_not_computed(results) if forward else ())],
    )


def human_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Human captions through each chosen setting's judges; own listeners differ, the others should not."""
    rows = [(choice.method, choice.point.runs, choice.point) for choice in choices if choice.point]
    columns = [column for judge in results.judges.values() for column in ranks(judge.name, judge.title, "human", TEXT)]
    caption = "Human captions of the test split through the same judges: recall in % and median rank (med.)"
    return filled("human", caption, rows, columns, head="Listener of")


def runs_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Every run: each cell of the sweep and each single run of the chain."""
    chosen = {id(run) for choice in choices if choice.point and choice.of > 1 for run in choice.point.runs}
    columns = [dial(name) for name in (*_dials(results), *other_settings(results), "seed")]
    columns += [measured("CIDEr", ("language", "CIDEr"), 3, "Validation", "val")]
    first = results.first.name
    columns += [measured(f"R@10 {first}", recall_by(first), 1, "Validation", "val")]
    columns += [measured("CIDEr", ("language", "CIDEr"), 3, "Test")]
    columns += [measured(f"R@10 {judge}", recall_by(judge), 1, "Test") for judge in results.judges]
    columns += [measured(DIVERSITY[key][0], ("diversity", key), DIVERSITY[key][1], "Test captions") for key in CAPTIONS]
    return filled(
        "runs",
        "One line a model; recall in %, from caption to image",
        [(run.method + (" ✓" if id(run) in chosen else ""), [run], Point((run,))) for run in results.runs],
        columns,
        [
            "✓ chosen on validation. words: per caption; distinct, repeats (a content bigram twice, or a word twice in "
            "a row) and no end: shares of the captions."
        ],
    )


def compact_tables(results: Results, choices: Sequence[Choice]) -> tuple[Table, Table]:
    """The results in two tables narrow enough for a terminal; the notes of both are with the second."""
    columns = [*(dial(name) for name in _dials(results)), replace(SEEDS, group="")]
    columns += [measured("CIDEr", ("language", "CIDEr"), 3)]
    columns += [measured(f"R@10 {judge}", recall_by(judge)) for judge in results.judges]
    columns += [measured("repeats", ("diversity", "repetition"), 3, spread=False)]
    more = [measured(name, ("language", name), 3, spread=False) for name in measured_language(results)[1:]]
    more += [_three(judge) for judge in results.judges if judge != ADAPTED]  # there is no room for it
    judges = "; ".join(f"{judge.name}: {judge.words}" for judge in results.judges.values())
    notes = [
        f"Recall in % of {_images(results)} test images, from caption to image, and median rank (med). "
        f"Judges: {judges}.",
        *_spread_note(choices),
        *_choice_notes(results, choices),
        *_not_computed(results),
        *results.notes,
    ]
    first = of_choices("results", "Results at the chosen λ", choices, columns)
    second = of_choices("more", "More metrics at the chosen λ", choices, more, notes)
    return replace(first, notes=(), warning=""), second


def other_settings(results: Results) -> list[str]:
    """Settings besides λ, ρ, γ and the seed that have several values within a method."""
    return sorted({key for method in results.methods for key in results.varying(method)} - {*SYMBOLS})


def measured_language(results: Results) -> list[str]:
    """CIDEr always, the others where a run has them (a note says why one was not computed)."""
    return [name for name in LANGUAGE if name == "CIDEr" or results.has("language", name)]


def _dials(results: Results) -> list[str]:
    """The settings that have a column of their own: λ and ρ, and γ where captions are guided."""
    guided = any("gamma" in point.settings for point in results.points)
    return [name for name in SYMBOLS if guided or name != "gamma"]


def _three(judge: str) -> Column:
    shown = [measured(name, recall_by(judge, name), spread=False) for name in ("R@1", "R@5")] + [median(judge)]
    return Column(f"R@1/5/med {judge}", show=lambda point: " ".join(column.show(point) or MISSING for column in shown))


def _images(results: Results) -> str:
    """How many images the test gallery has, "400 or 800" where runs differ."""
    counts = sorted({int(n) for run in results.runs if (n := run.value("test", "images")) is not None})
    return " or ".join(f"{n:,}" for n in counts) or "an unknown number of"


def _spread_note(choices: Sequence[Choice]) -> list[str]:
    several = any(choice.point and len(choice.point.runs) > 1 for choice in choices)
    return ["± is the standard deviation over the seeds."] if several else []


def _choice_notes(results: Results, choices: Sequence[Choice]) -> list[str]:
    others = other_settings(results)
    beside = [
        f"{choice.method} {', '.join(f'{name} = {setting(choice.point, name)}' for name in varied)}"
        for choice in choices
        if (varied := [name for name in results.varying(choice.method) if name in others])
    ]
    below = [choice.method for choice in choices if choice.basis is Basis.BELOW]
    unmeasured = [choice.method for choice in choices if choice.basis is Basis.UNMEASURED]
    notes = [f"Chosen in the same way: {'; '.join(beside)}."] if beside else []
    if below:
        notes.append(
            f"Marked *: no setting of {', '.join(below)} is natural enough, so its most natural one stands here."
        )
    if unmeasured:
        notes.append(
            f"Marked †: validation numbers of {', '.join(unmeasured)} are missing, so nothing was chosen by them."
        )
    return notes


def _not_computed(results: Results) -> list[str]:
    """One line a metric and reason, with the methods it holds for if not for all."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for run in results.runs:
        for name, reason in run.not_computed.items():
            methods = reasons.setdefault((name, reason), [])
            if run.method not in methods:
                methods.append(run.method)
    every = results.methods
    return [
        f"{name} was not computed" + ("" if methods == every else f" for {', '.join(methods)}") + f": {reason}"
        for (name, reason), methods in reasons.items()
    ]
