"""Result tables: chosen settings by all judges, every run, cross-play, smaller galleries and drift of listeners.

Tables of galleries and of drift are None where their metrics were not measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.analysis.bootstrap import Resamples
from pipeline.analysis.judge_titles import (
    HARD_RECALL,
    PRETRAINED,
    TEXT,
    get_judge_title,
    make_human_recall_keys,
    make_recall_keys,
)
from pipeline.analysis.measured_baselines import (
    BASELINE_DESCRIPTIONS,
    TEMPLATE,
    find_methods_not_above_template,
    list_measured_baselines,
)
from pipeline.analysis.results import LANGUAGE, MISSING, SYMBOLS, Point, Results, format_named_setting, format_setting
from pipeline.analysis.selection import Choice, SelectionBasis, describe_grid_end
from pipeline.errors import UserError
from pipeline.evaluation.judge_names import ADAPTED, OWN
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.report.caption_tables import CAPTIONS, DIVERSITY, TRUTH, format_counts
from pipeline.report.method_names import cite_papers
from pipeline.report.table_captions import RESULTS
from pipeline.report.tables import (
    Table,
    TableColumn,
    fill_table,
    format_number,
    format_sign,
    make_chosen_rows,
    make_language_column,
    make_median_rank_column,
    make_metric_column,
    make_recall_columns,
    make_rows_with_baselines,
    make_setting_column,
)

GALLERIES = {"1000": "1,000 images", "random100": "100 random images", "similar100": "100 similar images"}
SEEDS = TableColumn("seeds", "Chosen", lambda point: str(len(point.runs)))
SHADES = 8  # .heat-0 … .heat-8 of page.css


def build_results_table(
    results: Results, choices: Sequence[Choice], direction: str = TEXT, samples: Resamples | None = None
) -> Table:
    """Return language metrics and recall by each judge on the test split, at the settings chosen on validation.

    With `direction` image_to_text, there are neither language metrics nor recalls in the hard gallery.
    """
    forward = direction == TEXT
    columns = [*(make_setting_column(name, "Chosen") for name in _list_curve_settings(results)), SEEDS]
    if forward:
        columns += [make_language_column(name, "Language metrics") for name in list_measured_language(results)]
    for judge in results.judges.values():
        if forward and results.has(*make_recall_keys(judge.name, HARD_RECALL)):
            columns.append(
                make_metric_column(HARD_RECALL, make_recall_keys(judge.name, HARD_RECALL), group=judge.title)
            )
        columns += make_recall_columns(judge.name, judge.title, direction)
    direction_text = "from caption to image" if forward else "from image to caption"
    return fill_table(
        "results" if forward else "reverse",
        f"Test split, {direction_text}: recall in % of {format_counts(results, 'images')} images"
        " and median rank (med.)",
        make_rows_with_baselines(choices, list_measured_baselines(results)),
        columns,
        [
            *_explain_spread(choices),
            *_list_choice_notes(results, choices),
            *(
                [*_list_hard_gallery_notes(results, choices, samples), *_explain_missing_metrics(results)]
                if forward
                else ()
            ),
        ],
    )


def build_human_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Return recall of human captions by the judges of each chosen setting.

    Only the own and adapted listeners differ between settings.
    """
    rows = [(choice.method, choice.point.runs, choice.point) for choice in choices if choice.point]
    columns = [
        column
        for judge in results.judges.values()
        for column in make_recall_columns(judge.name, judge.title, "human", TEXT)
    ]
    caption = "Human captions of the test split through the same judges: recall in % and median rank (med.)"
    return fill_table("human", caption, rows, columns, head="Listener of")


def build_runs_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Return a table with a row for every run: each cell of the sweep and each single run of the chain."""
    chosen = {id(run) for choice in choices if choice.point and choice.candidates > 1 for run in choice.point.runs}
    columns = [
        make_setting_column(name) for name in (*_list_curve_settings(results), *list_other_settings(results), "seed")
    ]
    columns += [make_language_column("CIDEr", "Validation", "val")]
    first = results.first_judge.name
    columns += [make_metric_column(f"{results.score} {first}", results.score_keys(first), 1, "Validation", "val")]
    columns += [make_language_column("CIDEr", "Test")]
    columns += [_make_recall_column(score, judge, "Test") for score in results.scores for judge in results.judges]
    columns += [
        make_metric_column(DIVERSITY[key][0], ("diversity", key), DIVERSITY[key][1], "Test captions")
        for key in CAPTIONS
    ]
    return fill_table(
        "runs",
        "All runs: recall in %, from caption to image",
        [(run.method + (" ✓" if id(run) in chosen else ""), [run], Point((run,))) for run in results.runs],
        columns,
        [
            "✓: chosen on validation. words: per caption; distinct, repeats (a content bigram twice, or a word twice "
            "in a row) and no end (without EOS): shares of the captions.",
            *([f"Papers: {papers}."] if (papers := cite_papers(results.methods)) else []),
        ],
    )


def build_compact_tables(
    results: Results, choices: Sequence[Choice], samples: Resamples | None = None
) -> tuple[Table, ...]:
    """Return tables narrow enough for a terminal: the primary score, recall in the whole split, and other metrics.

    The last table has the notes of all tables.
    """
    columns = [*(make_setting_column(name) for name in _list_curve_settings(results)), replace(SEEDS, group="")]
    columns += [make_language_column("CIDEr")]
    judges = [judge for judge in results.judges if judge not in (ADAPTED, PRETRAINED)]  # too wide for a terminal
    columns += [_make_recall_column(results.score, judge) for judge in judges]
    columns += [make_metric_column("repeats", ("diversity", "repetition"), 3, spread=False)]
    if truth := results.has(*TRUTH):
        columns += [make_metric_column("true", TRUTH, 3, spread=False)]
    more_columns = [make_language_column(name, spread=False) for name in list_measured_language(results)[1:]]
    more_columns += [_make_compact_recall_column(judge) for judge in judges]
    titles = "; ".join(f"{judge.name}: {judge.description}" for judge in results.judges.values())
    notes = [
        f"Recall in % for {format_counts(results, 'images')} test images, from caption to image, "
        f"and median rank (med). Judges: {titles}.",
        *(["true: share of the captions' claims that are true of their image."] if truth else []),
        *_explain_spread(choices),
        *_list_choice_notes(results, choices),
        *_list_hard_gallery_notes(results, choices, samples),
        *_explain_missing_metrics(results),
        *results.notes,
    ]
    rows = make_rows_with_baselines(choices, list_measured_baselines(results))
    tables = [fill_table("results", RESULTS, rows, columns)]
    for score in results.scores[1:]:
        whole_columns = [_make_recall_column(score, judge) for judge in results.judges]
        tables.append(fill_table("whole", f"{score} among all images, at the chosen λ", rows, whole_columns))
    last = fill_table("more", "More metrics at the chosen λ", rows, more_columns, notes)
    return *(replace(table, notes=(), warning="") for table in tables), last


def list_other_settings(results: Results) -> list[str]:
    """Return the settings without a symbol, other than the seed, that have more than one value within a method."""
    return sorted({key for method in results.methods for key in _list_varying_settings(results, method)} - {*SYMBOLS})


def list_measured_language(results: Results) -> list[str]:
    """Return CIDEr and the other language metrics that any run has; a note explains a metric that was not computed."""
    return [name for name in LANGUAGE if name == "CIDEr" or results.has("language", name)]


def _list_varying_settings(results: Results, method: str) -> list[str]:
    """Return the method's settings, other than the seed, with more than one value; the curve's setting comes first."""
    curve_setting = results.curve_setting(method)
    values = {format_setting(point, curve_setting) for point in results.get_points(method)}
    return [*([curve_setting] if len(values) > 1 else []), *results.varying_settings(method)]


def _list_curve_settings(results: Results) -> list[str]:
    """Return the settings with their own column: λ, ρ, and every other setting of SYMBOLS that a method has."""
    return [n for n in SYMBOLS if n in ("lambda", "rho") or any(n in point.settings for point in results.points)]


def build_galleries_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """Return R@1 and R@10 in the whole test split and in smaller galleries, by each judge except the adapted listener.

    In the hard gallery, MRR replaces R@10. Return None if no smaller gallery was measured.
    """
    judges = [judge for judge in results.judges if judge != ADAPTED]
    sizes = [
        size for size in GALLERIES if any(results.has(*make_recall_keys(j, "R@10", "galleries", size)) for j in judges)
    ]
    galleries = {"Whole split": (), **{GALLERIES[size]: ("galleries", size) for size in sizes}}
    if any(results.has(*make_recall_keys(judge, HARD_RECALL)) for judge in judges):
        galleries["Hard gallery"] = ("galleries", HARD_GALLERY)
    columns = [
        make_metric_column(f"{recall} {judge}", make_recall_keys(judge, recall, *keys), 1, group)
        for group, keys in galleries.items()
        for judge in judges
        for recall in ("R@1", "MRR" if HARD_GALLERY in keys else "R@10")
    ]
    descriptions = "; ".join(f"{judge}: {results.judges[judge].description}" for judge in judges)
    notes = [f"Judges: {descriptions}. Similar images: the images nearest to the right one. MRR: mean of 1 / rank."]
    caption = "The same captions in smaller galleries: recall in %, test split, from caption to image"
    rows = make_rows_with_baselines(choices, list_measured_baselines(results))
    return fill_table("galleries", caption, rows, columns, notes) if len(galleries) > 1 else None


def build_drift_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """Return recall of human captions by each method's listener before and after joint training; None if unmeasured."""
    columns = [
        make_metric_column("before", make_human_recall_keys(PRETRAINED, results.score)),
        make_metric_column("after", make_human_recall_keys(OWN, results.score)),
        TableColumn("drift", show=lambda point: format_sign(_format_mean(compute_drift(point, results.score)))),
    ]
    notes = [
        "before, after: before and after joint training; for frozen_…, after adaptation to a frozen speaker. A drift "
        "below 0 means that the listener retrieves fewer images by human captions than before."
    ]
    caption = f"Drift of the listener: {results.score} of human captions in %, test split"
    complete = all(results.has(*make_human_recall_keys(judge, results.score)) for judge in (OWN, PRETRAINED))
    rows = [row for row in make_chosen_rows(choices) if row[2]]
    return fill_table("drift", caption, rows, columns, notes, "Listener of") if complete else None


def compute_drift(point: Point, score: str) -> list[float | None]:
    """Return each seed's drift: the own minus the pretrained listener's score on human captions, or None if missing."""
    pairs = [
        [run.value("test", *make_human_recall_keys(judge, score)) for judge in (OWN, PRETRAINED)] for run in point.runs
    ]
    return [
        None if own_score is None or pretrained_score is None else own_score - pretrained_score
        for own_score, pretrained_score in pairs
    ]


def build_cross_play_table(crossed: Mapping[str, Any]) -> Table:
    """Return recall of each method's captions (rows) by every listener (columns), shaded from lowest to highest mean.

    Raises UserError if `crossed` does not have the expected form.
    """
    try:
        listeners, seeds = crossed["listeners"], crossed["seeds"]
        cells = {
            name: [list(cell) for _, cell in zip(listeners, row, strict=True)]
            for name, row in zip(crossed["captions"], crossed["matrix"], strict=True)
        }
        # without a shared seed, a cell has the value of each method's first run
        if any(len(cell) not in (0, max(1, len(seeds))) for row in cells.values() for cell in row):
            raise ValueError("a cell has more or fewer values than there are seeds")
        caption = f"Cross-play: {crossed['recall']} in %, {crossed['split']} split, from caption to image"
    except (KeyError, TypeError, ValueError):
        raise UserError(
            "crossed.json: expected a matrix of captions × listeners with one value per seed; delete the file and run "
            "the cross stage again"
        ) from None
    means = [[None if _is_incomplete(cell) else statistics.fmean(cell) for cell in row] for row in cells.values()]
    known = [value for row in means for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    shades = [[None if v is None else round(SHADES * (v - low) / (high - low or 1.0)) for v in row] for row in means]
    other_listeners = [name for name in listeners if name not in cells]
    columns = [TableColumn("Captions of", text=True)]
    columns += [TableColumn(name, "Listener" if name in other_listeners else "Own listener of") for name in listeners]
    notes = [f"± is the standard deviation over {len(seeds)} seeds."] if len(seeds) > 1 else []
    descriptions = "; ".join(f"{name}: {get_judge_title(name).description}" for name in other_listeners)
    notes += [f"Listeners: {descriptions}."] if other_listeners else []
    notes += ["Speaker and listener of the same method and seed were trained jointly."]
    if any(_is_incomplete(cell) for row in cells.values() for cell in row):
        notes.append(f"{MISSING}: not measured for every seed.")
    if signature := crossed.get("signature"):
        notes.append("Protocol: " + " | ".join(part.strip() for part in str(signature).split("|")))
    rows = [[name, *map(_format_mean, row)] for name, row in cells.items()]
    return Table("crossed", caption, columns, rows, notes, shades=shades)


def _is_incomplete(values: Sequence[float | None]) -> bool:
    """Return whether there is no value, or one is missing; such a cell has no mean, so that no seed is dropped."""
    return not values or not all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _format_mean(values: Sequence[Any]) -> str:
    """Return the mean ± standard deviation, or a dash if a value is missing."""
    if _is_incomplete(values):
        return MISSING
    return format_number(statistics.fmean(values), 1, statistics.stdev(values) if len(values) > 1 else None)


def _make_recall_column(score: str, judge: str, group: str = "") -> TableColumn:
    return make_metric_column(f"{score} {judge}", make_recall_keys(judge, score), group=group)


def _make_compact_recall_column(judge: str) -> TableColumn:
    columns = [make_metric_column(name, make_recall_keys(judge, name), spread=False) for name in ("R@1", "R@5")]
    columns.append(make_median_rank_column(judge))
    return TableColumn(
        f"R@1/5/med {judge}", show=lambda point: " ".join(column.show(point) or MISSING for column in columns)
    )


def _explain_spread(choices: Sequence[Choice]) -> list[str]:
    multiple_seeds = any(choice.point and len(choice.point.runs) > 1 for choice in choices)
    return ["± is the standard deviation over the seeds."] if multiple_seeds else []


def _list_choice_notes(results: Results, choices: Sequence[Choice]) -> list[str]:
    others = list_other_settings(results)
    settings = [
        f"{choice.method} {', '.join(f'{name} = {format_setting(choice.point, name)}' for name in varied)}"
        for choice in choices
        if (varied := [name for name in _list_varying_settings(results, choice.method) if name in others])
    ]
    methods_below = [choice.method for choice in choices if choice.basis is SelectionBasis.BELOW]
    unmeasured = [choice.method for choice in choices if choice.basis is SelectionBasis.UNMEASURED]
    notes = [f"Other settings chosen by the same rule: {'; '.join(settings)}."] if settings else []
    grid_ends = [
        f"{choice.method} {format_named_setting(choice.point, results.curve_setting(choice.method))} ({end})"
        for choice in choices
        if choice.point and (end := describe_grid_end(results, choice))
    ]
    if grid_ends:
        ends = "; ".join(grid_ends)
        notes.append(f"Chosen at an end of the grid, so a better value may lie outside the grid: {ends}.")
    if methods_below:
        notes.append(
            f"Marked *: no setting of {', '.join(methods_below)} reaches the required CIDEr, so the setting with the "
            "highest CIDEr is shown."
        )
    if unmeasured:
        notes.append(f"Marked †: validation numbers of {', '.join(unmeasured)} are missing, so there was no choice.")
    return notes


def _list_hard_gallery_notes(results: Results, choices: Sequence[Choice], samples: Resamples | None) -> list[str]:
    """Return notes on R@1 (hard), on baselines without training, and on methods not clearly above the template.

    Return [] where R@1 (hard) was not measured. Baselines are named as in the tables' rows.
    """
    judges = [judge for judge in results.judges.values() if results.has(*make_recall_keys(judge.name, HARD_RECALL))]
    if not judges:
        return []
    at_random = statistics.fmean(results.values(*make_recall_keys(judges[0].name, "random (hard)")))
    baselines = list_measured_baselines(results)
    labels = [label for label, _, _ in make_rows_with_baselines((), baselines)]
    notes = [
        f"{HARD_RECALL}: {_describe_hard_gallery(results)}; {at_random:.1f} at random. Images without a hard gallery "
        "are omitted."
    ]
    if any(baseline.name in BASELINE_DESCRIPTIONS for baseline in baselines):
        descriptions = {
            label: BASELINE_DESCRIPTIONS[b.name].format(method=b.evaluated_with.method)
            for label, b in zip(labels, baselines, strict=True)
            if b.name in BASELINE_DESCRIPTIONS
        }
        notes.append(f"Without training: {'; '.join(f'{name}: {text}' for name, text in descriptions.items())}.")
    points = [choice.point for choice in choices if choice.point]
    for label, template in zip(labels, baselines, strict=True):
        if template.name == TEMPLATE and samples is not None:
            not_above = find_methods_not_above_template(results, points, template, samples)
            parts = [f"{judge.name}: {', '.join(not_above.get(judge.name, [])) or 'none'}" for judge in judges]
            notes.append(
                f"Not clearly above the {label} by {HARD_RECALL} (the 95% interval of the difference includes 0 or is "
                f"below 0), by judge: {'; '.join(parts)}."
            )
    return notes


def _describe_hard_gallery(results: Results) -> str:
    """Describe the hard gallery from the protocol of the runs."""
    parts = dict(part.partition("=")[::2] for run in results.runs for part in run.signature.split("|"))
    source, _, images = parts.get("hard-gallery", "").partition(":")
    if not images:
        return "recall among images with the right image's place, weather and light, which thus identify no image"
    gallery = f"recall among the right image and the {int(images) - 1} images nearest to it"
    if source == "features":
        return f"{gallery} by the mean of their features, which the judges also receive"
    return f"{gallery} by {source}, which is neither a judge nor used in training"


def _explain_missing_metrics(results: Results) -> list[str]:
    """Return a note per missing metric and reason; the note names the methods unless all are affected."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for run in results.runs:
        for name, reason in run.not_computed.items():
            methods = reasons.setdefault((name, reason), [])
            if run.method not in methods:
                methods.append(run.method)
    all_methods = results.methods
    return [
        f"{name} was not computed" + ("" if methods == all_methods else f" for {', '.join(methods)}") + f": {reason}"
        for (name, reason), methods in reasons.items()
    ]
