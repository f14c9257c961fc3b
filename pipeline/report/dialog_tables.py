"""Tables of visual dialog: the counterparts of Tables 1 to 4 of Lu et al. 2017, with what is reported beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.analysis.dialogs import Difference, between, between_judges
from pipeline.analysis.results import MISSING, Point, Results
from pipeline.analysis.selection import Choice
from pipeline.report.tables import Column, Table, chosen, dial, filled, measured, number, signed

RANKING = (("MRR", 4), ("R@1", 1), ("R@5", 1), ("R@10", 1), ("mean_rank", 2), ("NDCG", 3))
# VisDial v0.9: MRR, R@1, R@5, R@10, mean rank
REPORTED = {
    "g_mle_lf": (0.5199, 41.83, 61.78, 67.59, 17.07),
    "g_mle": (0.5386, 44.06, 63.55, 69.24, 16.01),
    "g_dis": (0.5467, 44.35, 65.28, 71.55, 14.23),
    "gan1": (0.5298, 43.12, 62.74, 68.58, 16.25),
    "gan2": (0.5459, 44.33, 65.05, 71.40, 14.34),
}
REPORTED_JUDGES = {
    "d_lf": (0.5807, 43.82, 74.68, 84.07, 5.78),
    "d_mle": (0.6140, 47.73, 77.50, 86.35, 5.15),
    "d_np": (0.6182, 47.98, 78.35, 87.16, 4.92),
    "d_np_att": (0.6222, 48.48, 78.75, 87.59, 4.81),
}
BESIDE = "Lu et al. 2017, VisDial v0.9"
# claims of the paper: the better one, the other, and whether they are discriminators
CLAIMS = (
    ("G-DIS ranks better than likelihood for as many steps", "g_dis", "g_more", False),
    ("G-DIS ranks better than G-MLE", "g_dis", "g_mle", False),
    ("D-NP-ATT ranks better than D-NP", "d_np_att", "d_np", True),
    ("D-NP ranks better than D-MLE", "d_np", "d_mle", True),
    ("HCIAE ranks better than LF (D)", "d_mle", "d_lf", True),
    ("HCIAE ranks better than HRE (D)", "d_mle", "d_hre", True),
    ("The history helps (D without the image)", "d_blind", "d_question", True),
    ("The image helps (D)", "d_mle", "d_blind", True),
)


def dialog_tables(results: Results, choices: Sequence[Choice], control: str) -> list[Table]:
    """Generators, discriminators, the claims, and what is asked."""
    points = {choice.method: choice.point for choice in choices if choice.point}
    found = [_generators(results, choices, points.get(control)), _answers(choices), _claims(points)]
    if first := next(iter(points.values()), None):
        found[1:1] = [_discriminators(results, choices, first), _kinds(choices, first)]
    return [table for table in found if table.rows]


def _generators(results: Results, choices: Sequence[Choice], control: Point | None) -> Table:
    names = list(dict.fromkeys(key for point in results.points for key in point.settings))
    columns = [dial(name, "Chosen") for name in names]
    columns += [Column("seeds", "Chosen", lambda point: str(len(point.runs)))]
    columns += [
        measured(_label(name), ("ranking", name), digits, "Candidates by likelihood") for name, digits in RANKING
    ]
    if control is not None:
        columns += [Column("MRR", f"less {control.method}", lambda point: _shown(between(point, control)))]
    columns += [_reported(n, digits, REPORTED) for n, (_, digits) in enumerate(RANKING[:5])]
    caption = f"Who answers: rank of the human answer among the candidates, {_count(results)} test dialogs"
    return filled("generators", caption, chosen(choices), columns, [NOTE])


def _discriminators(results: Results, choices: Sequence[Choice], first: Point) -> Table:
    columns = [Column(_label(name), "Candidates by score") for name, _ in RANKING]
    columns += [Column(_label(name), BESIDE) for name, _ in RANKING[:5]]
    rows = []
    learned = [(f"{c.method}'s own", c.point, "own") for c in choices if c.point and c.method.startswith("gan")]
    for title, point, judge in [*((name, first, name) for name in results.judges if name not in OWN), *learned]:
        cells = [number(point.mean("test", "judges", judge, name), digits) for name, digits in RANKING]
        beside = REPORTED_JUDGES.get(judge)
        cells += [number(None if beside is None else beside[n], digits) for n, (_, digits) in enumerate(RANKING[:5])]
        rows.append([title, *cells])
    caption = "Who judges: rank of the human answer among the candidates"
    return Table("discriminators", caption, [Column("Discriminator", text=True), *columns], rows)


def _answers(choices: Sequence[Choice]) -> Table:
    columns = [
        measured("true", ("answers", "true"), 3, "Answers of the beam"),
        measured("relevance", ("answers", "relevance"), 3, "Answers of the beam"),
        measured("words", ("answers", "words_per_caption"), 2, "Answers of the beam"),
        measured("distinct", ("answers", "distinct_captions"), 3, "Answers of the beam"),
        measured("true", ("human_answers", "true"), 3, "People's"),
        measured("relevance", ("human_answers", "relevance"), 3, "People's"),
        measured("told apart, %", ("judges", "told_apart", "told_apart"), 1, "A discriminator that learned to"),
        measured("MRR", ("ranking_per_word", "MRR"), 4, "Likelihood per word"),
    ]
    return filled("answers", "What is answered: true, right in part, and how varied", chosen(choices), columns)


def _kinds(choices: Sequence[Choice], first: Point) -> Table:
    of = [keys[1:] for keys in first.runs[0].numbers if keys[0] == "test" and keys[1] in ("refers", "kinds")]
    columns = [measured(key, (where, key), 3, TITLES[where], spread=False) for where, key in of]
    return filled("kinds", "MRR by how a thing is referred to, and by what is asked", chosen(choices), columns)


def _claims(points: dict[str, Point]) -> Table:
    rows = []
    judged = next(iter(points.values()), None)
    for claim, better, other, judges in CLAIMS:
        if judges and judged is not None:
            found = between_judges(judged, better, other)
        else:
            found = between(points[better], points[other]) if {better, other} <= points.keys() else None
        if found is not None:
            verdict = "not clear" if not found.clear else "holds" if found.value > 0 else "does not hold"
            rows.append([claim, _shown(found), verdict])
    columns = [Column("Claim", text=True), Column("difference in MRR"), Column("Here", text=True)]
    return Table("claims", "The paper's claims, and what parts of the encoder are worth", columns, rows, [INTERVALS])


RULE = (
    "Each method shows its setting with the highest MRR on the validation split, seeds averaged. A human answer ranks "
    "behind the candidates that share its score."
)
NOTE = "Reported numbers are of VisDial v0.9, real dialogs: only their order can be compared."
INTERVALS = (
    "Differences with the middle 95 % over test dialogs drawn with replacement; models are fixed, seeds averaged."
)
OWN = ("own", "told_apart")
TITLES = {"refers": "Referred to by", "kinds": "Asked for"}


def _shown(found: Difference | None) -> str:
    if found is None:
        return MISSING
    return signed(f"{found.value:+.4f}") + f" [{signed(f'{found.low:+.4f}')}, {signed(f'{found.high:+.4f}')}]"


def _reported(n: int, digits: int, known: Mapping[str, Sequence[float]]) -> Column:
    def show(point: Point) -> str:
        beside = known.get(point.method)
        return number(None if beside is None else beside[n], digits)

    return Column(_label(RANKING[n][0]), BESIDE, show)


def _label(name: str) -> str:
    return name.replace("_", " ")


def _count(results: Results) -> str:
    return f"{int(max(results.values('images'), default=0)):,}"
