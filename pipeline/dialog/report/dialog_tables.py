"""Tables of visual dialog: counterparts of the tables of Lu et al. 2017 with the reported numbers, and others.

The other tables have claims, MRR by type of reference and of question, and the truth and diversity of answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.analysis.results import MISSING, Point, Results, Run
from pipeline.analysis.selection import Choice
from pipeline.dialog.report.dialog_ranking import (
    Ranker,
    RankerDifference,
    collect_discriminators,
    collect_generators,
    compute_ranker_difference,
    get_adversary_name,
    get_known_difference,
)
from pipeline.report.tables import (
    Table,
    TableColumn,
    fill_table,
    format_number,
    format_sign,
    make_chosen_rows,
    make_metric_column,
    make_setting_column,
)

RANKING = (("MRR", 4), ("R@1", 1), ("R@5", 1), ("R@10", 1), ("mean_rank", 2), ("NDCG", 3))
# MRR, R@1, R@5, R@10 and mean rank on VisDial v0.9, as reported
REPORTED = {
    "g_mle_lf": (0.5199, 41.83, 61.78, 67.59, 17.07),
    "g_mle_hre": (0.5242, 42.28, 62.33, 68.17, 16.79),
    "g_mle": (0.5386, 44.06, 63.55, 69.24, 16.01),
    "g_dis": (0.5467, 44.35, 65.28, 71.55, 14.23),
    "gan1": (0.5298, 43.12, 62.74, 68.58, 16.25),
    "gan2": (0.5459, 44.33, 65.05, 71.40, 14.34),
    "d_lf": (0.5807, 43.82, 74.68, 84.07, 5.78),
    "d_hre": (0.5868, 44.82, 74.81, 84.36, 5.66),
    "d_mle": (0.6140, 47.73, 77.50, 86.35, 5.15),
    "d_np": (0.6182, 47.98, 78.35, 87.16, 4.92),
    "d_np_att": (0.6222, 48.48, 78.75, 87.59, 4.81),
    get_adversary_name("gan1"): (0.2177, 8.82, 32.97, 52.14, 18.53),
    get_adversary_name("gan2"): (0.6050, 46.20, 77.92, 87.20, 4.97),
}
REPORTED_GROUP = "Lu et al. 2017"
TITLES = {  # titles of the baselines and ablations that rank candidates
    "chance": "chance",
    "prior": "answer frequency",
    "question_prior": "answer frequency given the question",
    "d_question": "d_mle, question only",
    "d_blind": "d_mle, no image",
    "d_blind_hre": "d_hre, no image",
}
CLAIMS = (  # the claim, the ranker expected to be better, the other ranker
    ("G-DIS ranks better than likelihood for as many steps", "g_dis", "g_more"),
    ("G-DIS ranks better than G-MLE", "g_dis", "g_mle"),
    ("From D's encoder G-DIS ranks better than likelihood", "g_dis_d", "g_more_d"),
    ("From D's encoder likelihood ranks better than G-MLE", "g_more_d", "g_mle"),
    ("From D's encoder PSST ranks better than Gumbel straight-through (G-DIS)", "g_psst_d", "g_dis_d"),
    ("From D's encoder ReinMax ranks better than Gumbel straight-through (G-DIS)", "g_reinmax_d", "g_dis_d"),
    ("From D's encoder RLOO ranks better than Gumbel straight-through (G-DIS)", "g_rloo_d", "g_dis_d"),
    ("From D's encoder GAN1's generator ranks better than G-DIS", "gan1_d", "g_dis_d"),
    ("From D's encoder GAN2's generator ranks better than G-DIS", "gan2_d", "g_dis_d"),
    ("GAN1's discriminator ranks better than its initial one", get_adversary_name("gan1_d"), "d_np_att"),
    ("GAN2's discriminator ranks better than its initial one", get_adversary_name("gan2_d"), "d_np_att"),
    ("D-NP-ATT ranks better than D-NP", "d_np_att", "d_np"),
    ("D-NP ranks better than D-MLE", "d_np", "d_mle"),
    ("HCIAE ranks better than LF (D-MLE)", "d_mle", "d_lf"),
    ("HCIAE ranks better than HRE (D-MLE)", "d_mle", "d_hre"),
    ("Question and history rank better than the question alone (D-MLE)", "d_blind", "d_question"),
    ("With the image D-MLE ranks better than without", "d_mle", "d_blind"),
    ("Question and history rank better than the question alone (G-MLE)", "g_mle_blind", "g_mle_question"),
    ("With the image G-MLE ranks better than without", "g_mle", "g_mle_blind"),
    ("From D's encoder history adds to the question (G-MLE)", "g_more_d_blind", "g_more_d_question"),
    ("From D's encoder the image adds to both (G-MLE)", "g_more_d", "g_more_d_blind"),
    ("Attention over the history ranks better than an LSTM over rounds (D-MLE, no image)", "d_blind", "d_blind_hre"),
    ("D-MLE ranks better than the prior given the question's text", "d_mle", "question_prior"),
    ("G-MLE ranks better than the prior given the question's text", "g_mle", "question_prior"),
)


def build_dialog_tables(results: Results, choices: Sequence[Choice], control: str) -> list[Table]:
    """Return the tables of generators, discriminators, claims, types of questions, and answers.

    Tables without rows, and tables that have only the column of names, are left out.
    """
    speakers, listeners = collect_generators(choices), collect_discriminators(results, choices)
    tables = [
        _build_generator_table(results, choices, speakers, control),
        _build_discriminator_table(listeners),
        _build_claim_table(speakers | listeners),
        _build_kind_table(choices, listeners),
        _build_answer_table(choices, speakers, control),
    ]
    return [table for table in tables if table.rows and len(table.columns) > 1]


def _build_generator_table(
    results: Results, choices: Sequence[Choice], rankers: Mapping[str, Ranker], control: str
) -> Table:
    settings = list(dict.fromkeys(key for point in results.points for key in point.settings))
    columns = [make_setting_column(name, "Chosen") for name in settings]
    columns += [_build_seed_column(), *_build_ranking_columns("Candidates by likelihood")]
    optional_columns = [
        make_metric_column(_format_label(name), ("ranking_per_word", name), digits, "Candidates by likelihood per word")
        for name, digits in RANKING
        if name in ("MRR", "R@1", "mean_rank")
    ]
    if control in rankers:
        optional_columns.append(
            TableColumn(
                "MRR",
                f"less {control}",
                lambda point: _format_difference(get_known_difference(rankers, point.method, control)),
            )
        )
    optional_columns.append(_build_truth_correlation_column("likelihood"))
    position = len(columns) - len(REPORTED["g_mle"])
    columns[position:position] = optional_columns
    caption = f"Generators: rank of the human answer among the candidates, {_format_count(results)} test dialogs"
    return fill_table("generators", caption, make_chosen_rows(choices), columns, [NOTE])


def _build_discriminator_table(rankers: Mapping[str, Ranker]) -> Table:
    columns = [_build_seed_column(), *_build_ranking_columns("Candidates by score")]
    columns.insert(len(columns) - len(REPORTED["g_mle"]), _build_truth_correlation_column("score"))
    caption = "Discriminators: rank of the human answer among the candidates"
    return fill_table("discriminators", caption, _build_ranker_rows(rankers), columns, [NOTE], head="Discriminator")


def _build_ranker_rows(rankers: Mapping[str, Ranker]) -> list[tuple[str, Sequence[Run], Point]]:
    return [(TITLES.get(name, name), ranker.point.runs, ranker.point) for name, ranker in rankers.items()]


def _build_seed_column() -> TableColumn:
    return TableColumn("seeds", "", lambda point: str(len(point.runs)))


def _build_ranking_columns(group: str) -> list[TableColumn]:
    """Return columns of the metrics, then columns of the numbers that the paper reports."""
    columns = [make_metric_column(_format_label(name), ("ranking", name), digits, group) for name, digits in RANKING]
    return columns + [
        _build_reported_column(n, digits) for n, (_, digits) in enumerate(RANKING[: len(REPORTED["g_mle"])])
    ]


def _build_truth_correlation_column(quantity: str) -> TableColumn:
    return make_metric_column("truth", ("truth_correlation",), 3, f"Correlation of {quantity} with")


def _build_answer_table(choices: Sequence[Choice], rankers: Mapping[str, Ranker], control: str) -> Table:
    def format_gain(point: Point) -> str:
        if not {point.method, control} <= rankers.keys():
            return MISSING
        return _format_difference(
            compute_ranker_difference(
                rankers[point.method].compute_true_shares(), rankers[control].compute_true_shares()
            )
        )

    columns = [
        make_metric_column("true", ("answers", "true"), 3, "Answers of the beam"),
        TableColumn("true", f"less {control}", format_gain),
        make_metric_column("relevance", ("answers", "relevance"), 3, "Answers of the beam"),
        make_metric_column("words", ("answers", "words_per_caption"), 2, "Answers of the beam"),
        make_metric_column("distinct", ("answers", "distinct_captions"), 3, "Answers of the beam"),
        make_metric_column("true", ("human_answers", "true"), 3, "Human answers"),
        make_metric_column("relevance", ("human_answers", "relevance"), 3, "Human answers"),
        make_metric_column("words", ("human_answers", "words_per_caption"), 2, "Human answers"),
        make_metric_column("distinct", ("human_answers", "distinct_captions"), 3, "Human answers"),
        make_metric_column("accuracy, %", ("judges", "adapted", "human_preferred"), 1, "Retrained discriminator"),
    ]
    return fill_table("answers", "Truth, relevance and diversity of answers", make_chosen_rows(choices), columns)


def _build_kind_table(choices: Sequence[Choice], rankers: Mapping[str, Ranker]) -> Table:
    rows = [*make_chosen_rows(choices), *_build_ranker_rows(rankers)]
    found = dict.fromkeys(keys for _, runs, _ in rows for run in runs for keys in run.numbers)
    groups = [keys[1:] for keys in found if keys[0] == "test" and keys[1] in KINDS]
    columns = [make_metric_column(key, (grouping, key), 3, KINDS[grouping], spread=False) for grouping, key in groups]
    caption = "MRR by type of reference and of question"
    return fill_table("kinds", caption, rows, columns, head="Model")


def _build_claim_table(rankers: Mapping[str, Ranker]) -> Table:
    rows = []
    for claim, better, other in CLAIMS:
        difference = get_known_difference(rankers, better, other)
        if difference is not None:
            seeds = ", ".join(format_sign(f"{value:+.4f}") for value in difference.by_seed)
            rows.append([claim, _format_difference(difference), seeds, difference.verdict])
    columns = [
        TableColumn("Claim", text=True),
        TableColumn("difference in MRR"),
        TableColumn("seeds"),
        TableColumn("verdict", text=True),
    ]
    return Table("claims", "Claims of the paper, and ablations of the encoder", columns, rows, [INTERVALS])


RULE = (
    "Each method has its setting with the highest MRR on the validation split, averaged over seeds. A human answer "
    "ranks behind all candidates with the same score."
)
NOTE = "Reported numbers are for VisDial v0.9, dialogs about photos: only their order is comparable."
INTERVALS = (
    "A claim holds or fails where the 95 % interval over resampled dialogs and the differences of all seeds are on one "
    "side of 0. Otherwise, or with one seed, it is open. Models are fixed, and seeds are averaged. Generators and "
    "adversarial discriminators have seeds of joint training after one pretraining. Other discriminators have seeds of "
    "pretraining."
)
KINDS = {"refers": "Referred to by", "kinds": "Asked for"}


def _format_difference(difference: RankerDifference | None) -> str:
    if difference is None:
        return MISSING
    return (
        format_sign(f"{difference.value:+.4f}")
        + f" [{format_sign(f'{difference.low:+.4f}')}, {format_sign(f'{difference.high:+.4f}')}]"
    )


def _build_reported_column(n: int, digits: int) -> TableColumn:
    def format_reported(point: Point) -> str:
        reported = REPORTED.get(point.method)
        return format_number(None if reported is None else reported[n], digits)

    return TableColumn(_format_label(RANKING[n][0]), REPORTED_GROUP, format_reported)


def _format_label(name: str) -> str:
    return name.replace("_", " ")


def _format_count(results: Results) -> str:
    return f"{int(max(results.values('images'), default=0)):,}"
