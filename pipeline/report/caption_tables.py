"""Caption tables of the report: truth, diversity, surface quality, and multiple captions per image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from pipeline.analysis.caption_files import CONTROL_OVERLAP
from pipeline.analysis.judge_titles import Keys
from pipeline.analysis.measured_baselines import HUMAN, list_measured_baselines
from pipeline.analysis.results import Point, Results, Run, make_human_run
from pipeline.analysis.selection import Choice
from pipeline.metrics.diversity import MBLEU_CORPUS, MBLEU_PER_CAPTION
from pipeline.metrics.registry import METRICS
from pipeline.report.tables import Table, fill_table, make_metric_column, make_rows_with_baselines

DIVERSITY = {
    "words_per_caption": ("words", 1),
    "words_used": ("vocabulary", 0),
    "distinct_captions": ("distinct", 3),
    "Div-1": ("Div-1", 3),
    "Div-2": ("Div-2", 3),
    "Self-BLEU": ("Self-BLEU", 3),
    "repetition": ("repeats", 3),
    "unfinished": ("no end", 3),
    "human_log_likelihood": ("log p", 3),
}
TRUTH: Keys = ("faithfulness", "precision")  # share of the captions' claims that are true of their image
DIVERSITY_NOTES = {
    "Self-BLEU": "Self-BLEU: BLEU-5 of each of the first 1,000 captions against the others; a lower value means more "
    "variety.",
    "human_log_likelihood": "log p: mean log-probability that the speaker assigns to a token of human captions (words "
    "and EOS), in nats.",
}
HUMAN_NOTES = {  # notes on the row of human captions, by table name
    "diversity": "Human captions: the first caption of each image.",
    "reader": "Human captions: each caption is compared with the others of its image. no end (truncated by the prepare "
    "stage), UNK (a word outside the vocabulary), distinct and vocabulary: of the first caption of each image.",
}
CAPTIONS = ("words_per_caption", "distinct_captions", "repetition", "unfinished")
SURFACE: dict[tuple[str, str], tuple[str, int]] = {
    ("diversity", "unfinished"): ("no end", 3),
    ("diversity", "unknown"): ("UNK", 3),
    ("reader", "repeated"): ("repeated word", 3),
    ("reader", "content_words"): ("human words", 3),
    ("reader", "colour_words"): ("human colours", 3),
    ("diversity", "distinct_captions"): ("distinct", 3),
    ("diversity", "words_used"): ("vocabulary", 0),
    ("chair", "objects"): ("objects", 2),
    ("chair", "CHAIR_i"): ("CHAIR_i", 3),
    ("chair", "CHAIR_s"): ("CHAIR_s", 3),
    CONTROL_OVERLAP: ("as control", 3),
}
BEST_DIGITS = {metric.name: metric.digits for metric in METRICS if metric.best_of_beam}
CAPTION_SETS = {"samples": "Random sampling", "beams": "Beam search"}
SET_METRICS = ("CIDEr", "Div-1", "Div-2", MBLEU_CORPUS, MBLEU_PER_CAPTION)


def build_caption_tables(results: Results, choices: Sequence[Choice]) -> list[Table]:
    """Return the tables of truth, diversity and surface quality of captions, and of multiple captions per image.

    A column appears only where a run has its metric, and a table only where it has a column. A row of human captions
    appears only where a metric of the table was measured for human captions.
    The tables of multiple captions show the best caption of a wide beam, and all captions (Chen and Jin 2020, Tables 2
    and 4).
    """
    fact_keys = ("test", "faithfulness", "by_kind")
    kinds = dict.fromkeys(keys[3] for run in results.runs for keys in run.numbers if keys[:3] == fact_keys)
    truth_metrics = [("true", TRUTH[-1]), ("told", "told")]
    samples, beams = (format_counts(results, "multi_sample", kind, "captions") for kind in CAPTION_SETS)
    tables: list[tuple[str, str, list[tuple[str, Keys, int, str]], list[str]]] = [
        (
            "faithfulness",
            "Truth of the captions, test split",
            [
                *((label, ("faithfulness", key), 3, "All facts") for label, key in truth_metrics),
                ("claims", ("faithfulness", "claims_per_caption"), 2, "All facts"),
                *(
                    (label, (*fact_keys[1:], kind, key), 3, kind.capitalize())
                    for kind in kinds
                    for label, key in truth_metrics
                ),
            ],
            [
                "true: share of the captions' claims that are true of their image; told: share of the image's facts "
                "that the caption states; claims: per caption."
            ],
        ),
        (
            "diversity",
            "Diversity of the captions, test split",
            [(label, ("diversity", key), digits, "") for key, (label, digits) in DIVERSITY.items()],
            [
                "words: per caption; vocabulary: number of distinct words; distinct: distinct captions per caption; "
                "Div-n: distinct n-grams per word, over all captions together; repeats (a content bigram twice, or a "
                "word twice in a row) and no end (without EOS): shares of the captions.",
                *(note for key, note in DIVERSITY_NOTES.items() if results.has("diversity", key)),
            ],
        ),
        (
            "reader",
            "Surface quality of the captions, test split",
            [(label, keys, digits, "") for keys, (label, digits) in SURFACE.items()],
            [
                "Shares of captions: no end (without EOS), UNK (with UNK), repeated word (a content word twice), "
                "distinct, and as control (equal to the control's caption by the same seed). human words, human "
                "colours: shares of content words and of colours that occur in a human caption of the image. "
                "vocabulary: number of distinct words; objects: mentions per caption; CHAIR: share of mentions (i), "
                "and of captions with a mention (s), of objects that are neither in a human caption of the image nor "
                "annotated in it.",
            ],
        ),
        (
            "best",
            "The best caption of a wide beam, test split",
            [(name, ("multi_sample", "beams", "best", name), digits, "") for name, digits in BEST_DIGITS.items()],
            [f"Beam width: {beams}."],
        ),
        (
            "multi_sample",
            "Several captions of each image, test split",
            [
                (name, ("multi_sample", kind, name), 3, group)
                for kind, group in CAPTION_SETS.items()
                for name in SET_METRICS
            ],
            [
                f"{samples} captions drawn at random, and the {beams} captions of a beam of that width. CIDEr: mean "
                "over these captions; Div-n: distinct n-grams per word of an image's captions; mBLEU-4: BLEU-4 of each "
                "caption against the image's others (a lower value means more variety): of the corpus "
                "(self-critical.pytorch), and as a mean over captions (Chen and Jin 2020)."
            ],
        ),
    ]
    result, baselines = [], list_measured_baselines(results)
    for name, caption, column_specs, notes in tables:
        if columns := [make_metric_column(*column) for column in column_specs if results.has(*column[1])]:
            keys = [key for _, key, _, _ in column_specs]
            human = _list_human_rows(choices, keys)
            notes += [HUMAN_NOTES[name]] if human and name in HUMAN_NOTES else []
            table_baselines = [
                b for b in baselines if b.name != HUMAN and any(b.point.mean("test", *key) is not None for key in keys)
            ]
            result.append(
                fill_table(name, caption, [*make_rows_with_baselines(choices, table_baselines), *human], columns, notes)
            )
    return result


def _list_human_rows(choices: Sequence[Choice], metrics: Sequence[Keys]) -> list[tuple[str, Sequence[Run], Point]]:
    """Return the row of human captions, or no row unless a run has one of `metrics`."""
    rows = (Point((make_human_run(run),)) for choice in choices if choice.point for run in choice.point.runs)
    measured_rows = (row for row in rows if any(row.mean("test", *keys) is not None for keys in metrics))
    return [("human captions", (), row) for row in islice(measured_rows, 1)]


def format_counts(results: Results, *keys: str) -> str:
    """Return the number at `keys` on the test split as text, such as "400", or "400 or 800" where runs differ.

    Returns "an unknown number of" where no run has the number.
    """
    return " or ".join(f"{int(n):,}" for n in sorted(set(results.values(*keys)))) or "an unknown number of"
