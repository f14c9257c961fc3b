"""Tables that compare methods' curves: at equal CIDEr, at equal recall, against a reference, and along ρ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.analysis.comparison import MAX_SHORT_SHARE, Comparison, ComparisonSlice, CurveReading
from pipeline.analysis.judge_titles import Keys, make_recall_keys
from pipeline.analysis.measured_baselines import read_baseline_curves
from pipeline.analysis.results import LANGUAGE, MISSING, SYMBOLS, Run, format_setting
from pipeline.metrics.registry import TABLE_METRICS
from pipeline.report.tables import RECALLS, Table, TableColumn, fill_table, format_number, format_sign

BASELINE_NOTE = "The last rows are captions without training; their own CIDEr is in brackets where it was measured."


def build_equal_tables(comparison: Comparison) -> list[Table]:
    """Return tables at equal CIDEr, each with its differences from the reference, and tables at equal recall."""
    pairs = [
        (build_table_at_cider(comparison, each), build_significance_table(comparison, each))
        for each in comparison.at_cider
    ]
    at_score = [build_table_at_score(comparison, slice_) for slice_ in comparison.at_score]
    return [table for table in (*(table for pair in pairs for table in pair), *at_score) if table]


def build_rho_tables(comparison: Comparison) -> list[Table]:
    """Return a table of the score against ρ for each method with several curves that differ only in ρ."""
    return [build_rho_table(comparison, slice_) for slice_ in comparison.along_rho]


def build_compact_comparison(comparison: Comparison) -> list[Table]:
    """Return the score at equal CIDEr and its significance, in tables narrow enough for a terminal."""
    builders = (build_table_at_cider, build_significance_table)
    tables = [build(comparison, slice_, compact=True) for slice_ in comparison.at_cider for build in builders]
    return [table for table in tables if table]


def build_table_at_cider(comparison: Comparison, slice_: ComparisonSlice, compact: bool = False) -> Table:
    """Return the table of recall by every judge at equal CIDEr (Tables 2 and 3 of PSST).

    With `compact`, the columns are the score by each judge, without recalls of other ranks and spreads over seeds.
    """
    results, score = comparison.results, comparison.results.score
    names, baselines = list(dict.fromkeys((score, *RECALLS))), read_baseline_curves(comparison)
    columns = [
        _make_estimate_column(n, make_recall_keys(j.name, n), 1, j.title)
        for j in results.judges.values()
        for n in names
    ]
    columns += [
        _make_spread_column(f"{score} {judge}", results.score_keys(judge), 1) for judge in results.first_and_last_judge
    ]
    if compact:
        columns = [_make_estimate_column(f"{score} {judge}", results.score_keys(judge), 1) for judge in results.judges]
    caption = f"Recall at equal naturalness, CIDEr {slice_.level:.3f}: in %, test split, from caption to image"
    return fill_table(
        "equal-cider-compact" if compact else f"equal-cider-{_make_slug(slice_)}",
        (f"{score} at CIDEr {slice_.level:.3f}" if compact else caption) + _describe_bounds(slice_),
        _make_rows([*slice_.readings, *baselines]),
        columns,
        [*_list_notes(comparison, slice_, 3), *([BASELINE_NOTE] if baselines else [])],
    )


def build_table_at_score(comparison: Comparison, slice_: ComparisonSlice) -> Table:
    """Return the table of language metrics at equal score by the first judge (Tables 1 and 6 of PSST)."""
    measured = {keys[1] for reading in slice_.readings for keys in reading.estimates}
    metrics = [name for name in LANGUAGE if name in measured or name == "CIDEr"]
    columns = [_make_estimate_column(name, ("language", name), TABLE_METRICS[name].digits) for name in metrics]
    level, judge = f"{slice_.fixed} {slice_.level:.4g}%", comparison.results.first_judge.title.lower()
    return fill_table(
        f"equal-recall-{_make_slug(slice_)}",
        f"Naturalness at equal discriminability, {level} ({judge}): test split",
        _make_rows(slice_.readings),
        [*columns, _make_spread_column("CIDEr", ("language", "CIDEr"), 3)],
        _list_notes(comparison, slice_, 1),
    )


def build_significance_table(comparison: Comparison, slice_: ComparisonSlice, compact: bool = False) -> Table | None:
    """Return the table of every method's score minus the reference's, at equal CIDEr.

    A dash marks a number that was not measured, a pair of lower bounds, or a bound that does not determine the order.
    With `compact`, the columns are those of the first and the last judge. Returns None without a reference, or if the
    reference or all other methods have no intervals at this CIDEr.
    """
    results, resampled_readings = comparison.results, [reading for reading in slice_.readings if reading.resampled]
    compared_readings = [reading for reading in resampled_readings if reading.curve is not slice_.reference]
    if slice_.reference is None or len(resampled_readings) == len(compared_readings) or not compared_readings:
        return None
    judges = [judge for name, judge in results.judges.items() if name in results.first_and_last_judge or not compact]
    pairs = [
        _make_difference_columns(slice_, judge.name, f"{results.score} {judge.name}", f"p {judge.name}")
        if compact
        else _make_difference_columns(slice_, judge.name, f"Δ {results.score}", "p", judge.title)
        for judge in judges
    ]
    by_label = [slice_.differences.get(reading.curve.label, {}) for reading in compared_readings]
    shown = [[by_judge[judge.name] for judge in judges if judge.name in by_judge] for by_judge in by_label]
    bounds = any(difference.bound for row in shown for difference in row)
    return fill_table(
        "significance-compact" if compact else f"significance-{_make_slug(slice_)}",
        f"{results.score} minus that of {slice_.reference.label}, at CIDEr {slice_.level:.3f}"
        + ("" if compact else ", by all judges"),
        _make_rows(compared_readings),
        [column for pair in pairs for column in pair],
        [
            f"[95% intervals] over {comparison.resamples:,} resamples of the test images, which are the same for both "
            "methods; seeds are averaged. Marked *: the interval excludes 0.",
            "p is two-sided, from the resamples' standard deviation, and Holm-adjusted for all "
            f"{sum(map(len, by_label))} differences (of every judge); the intervals are not adjusted. The intervals do "
            "not contain the spread over training seeds, nor the spread over pretrainings, which was not measured.",
            *(["≥, ≤: one of the two numbers is a lower bound, so the difference is a bound."] if bounds else []),
            *_explain_dashes([len(row) for row in shown], len(judges)),
        ],
        other_runs=slice_.reference.runs,
    )


def build_rho_table(comparison: Comparison, slice_: ComparisonSlice) -> Table:
    """Return the table of one method's score against ρ at one CIDEr (Figure 4 of PSST)."""
    results, method = comparison.results, slice_.readings[0].curve.method
    columns = [
        _make_estimate_column(judge.title, results.score_keys(judge.name), 1, results.score)
        for judge in results.judges.values()
    ]
    rows = [
        (format_setting(each.curve.points[0], "rho") + _choose_mark(each), each.curve.runs, each)
        for each in slice_.readings
    ]
    return fill_table(
        f"rho-{method}",
        f"{method}: {results.score} in % against ρ, at CIDEr {slice_.level:.3f}, test split",
        rows,
        [*columns, _make_spread_column(results.first_judge.name, results.score_keys(results.first_judge.name), 1)],
        ["Fixed CIDEr: the highest that the curves of all ρ reach.", *_list_notes(comparison, slice_, 3)],
        head="ρ",
    )


def _explain_dashes(counts: Sequence[int], judges: int) -> Iterator[str]:
    """Yield the explanation of dashes, where a row has fewer differences (`counts`) than displayed `judges`."""
    if min(counts) < judges:
        yield (
            f"{MISSING} ({counts.count(0)} of {len(counts)} rows have only dashes): both numbers are lower bounds (§), "
            "or one bound does not determine which number is higher, or one number was not measured."
        )


def _list_notes(comparison: Comparison, slice_: ComparisonSlice, digits: int) -> Iterator[str]:
    """Yield notes on how values were read, on their intervals, and on curves that do not reach the level."""
    if slice_.rule:
        yield slice_.rule
    results = comparison.results
    score = f"{results.score} ({results.first_judge.title.lower()})"
    curve_methods = [reading.curve.method for reading in slice_.readings if len(reading.curve.points) > 1]
    symbols = dict.fromkeys(SYMBOLS.get(name, name) for name in map(results.curve_setting, curve_methods))
    yield (
        f"Read from each method's curve along {' or '.join(symbols) or 'λ'} (seeds averaged). Settings that contradict "
        f"the trade-off of CIDEr and {score} are pooled. The curve is linear between neighbours and undefined beyond "
        "the last setting."
    )
    estimates = [estimate for reading in slice_.readings for estimate in reading.estimates.values()]
    marks = [_choose_mark(reading) for reading in slice_.readings]
    if any(estimate.interval for estimate in estimates):
        share = ""
        if slice_.fixed == "CIDEr" and comparison.control:
            share = f"; in each resample, the fixed CIDEr is the same share of the CIDEr of {comparison.control}"
        resamples = f"{comparison.resamples:,} resamples of the test images"
        yield f"[95% intervals] over {resamples}, with these trained models{share}."
    if any(estimate.spread is not None for estimate in estimates):
        yield (
            "± is the standard deviation over (n) seeds, each read from its own curve where the curve reaches the "
            "value."
        )
    if "§" in marks:
        yield (
            f"Marked §, {marks.count('§')} of {len(marks)} rows: every setting of the method has a higher "
            f"{slice_.fixed}; the numbers are those of the lowest setting. They are lower bounds, and two lower bounds "
            "cannot be compared."
        )
    if "‡" in marks:
        yield (
            f"Marked ‡: in more than {MAX_SHORT_SHARE:.0%} of the resamples the curve ends before this value; "
            "these resamples use the numbers of its last setting."
        )
    unreached = [reading for reading in slice_.readings if reading.nearest is None]
    # curves with settings at or above the level have no numbers if the other metric was not measured there
    unmeasured = [reading for reading in unreached if reading.span and reading.span[1] >= slice_.level]
    if ranges := [_describe_range(reading, digits) for reading in unreached if reading not in unmeasured]:
        yield f"{MISSING}, not reached ({slice_.fixed} measured): {'; '.join(ranges)}."
    if unmeasured:
        other_metric = score if slice_.fixed == "CIDEr" else "CIDEr"
        labels = ", ".join(reading.curve.label for reading in unmeasured)
        yield f"{MISSING}: no setting of {labels} that reaches this {slice_.fixed} has {other_metric}."
    if slice_.reference and slice_.reference.label in {r.curve.label for r in slice_.readings if r.nearest is None}:
        yield f"{slice_.reference.label} is not reached, so there are no differences from it here."
    measured = {keys for reading in slice_.readings for keys in reading.estimates}
    incomplete = [each.curve.label for each in slice_.readings if each.nearest and measured - {*each.estimates}]
    if incomplete:
        yield f"{MISSING}: a setting of {', '.join(incomplete)} has no value of this metric."
    yield from comparison.notes


def _describe_bounds(slice_: ComparisonSlice) -> str:
    """Return a caption's remark on how many rows hold lower bounds; "" if none does."""
    bounds = sum(reading.is_lower_bound for reading in slice_.readings)
    return f" (§: {bounds} of {len(slice_.readings)} rows are lower bounds)" if bounds else ""


def _describe_range(reading: CurveReading, digits: int) -> str:
    if reading.span is None:
        return f"{reading.curve.label} not measured"
    low, high = (f"{end:.{digits}f}" for end in reading.span)
    return f"{reading.curve.label} {low}" + ("" if low == high else f" to {high}")


def _make_estimate_column(label: str, keys: Keys, digits: int, group: str = "") -> TableColumn:
    """Return a column with a reading's estimate and its interval."""

    def show(reading: CurveReading) -> str | None:
        if (estimate := reading.estimates.get(keys)) is None:
            return None
        ends = ", ".join(format_number(end, digits) for end in estimate.interval or ())
        return format_number(estimate.value, digits) + (f" [{ends}]" if ends else "")

    return TableColumn(label, group, show)


def _make_spread_column(label: str, keys: Keys, digits: int) -> TableColumn:
    """Return a column with the standard deviation over a reading's seeds, and their number."""

    def show(reading: CurveReading) -> str | None:
        estimate = reading.estimates.get(keys)
        if estimate is None or estimate.spread is None:
            return None
        return f"{format_number(estimate.spread, digits)} ({estimate.seeds})"

    return TableColumn(label, "± over seeds", show)


def _make_difference_columns(
    slice_: ComparisonSlice, judge: str, label: str, p_label: str, group: str = ""
) -> tuple[TableColumn, TableColumn]:
    """Return the columns of a reading's difference from the reference, with its interval, and of its p-value."""

    def show_difference(reading: CurveReading) -> str | None:
        if (difference := slice_.differences.get(reading.curve.label, {}).get(judge)) is None:
            return None
        value, low, high = (format_sign(f"{number:+.1f}") for number in (difference.value, *difference.interval))
        return f"{difference.bound}{value} [{low}, {high}]{'*' if difference.clear else ''}"

    def show_p(reading: CurveReading) -> str | None:
        difference = slice_.differences.get(reading.curve.label, {}).get(judge)
        if difference is None:
            return None
        return "<0.001" if difference.p < 0.001 else f"{difference.p:.3f}"

    return TableColumn(label, group, show_difference), TableColumn(p_label, group, show_p)


def _choose_mark(reading: CurveReading) -> str:
    if reading.is_lower_bound:
        return "§"
    return "‡" if reading.nearest is not None and reading.share_below_level > MAX_SHORT_SHARE else ""


def _make_rows(readings: Sequence[CurveReading]) -> list[tuple[str, list[Run], CurveReading]]:
    return [(reading.curve.label + _choose_mark(reading), reading.curve.runs, reading) for reading in readings]


def _make_slug(slice_: ComparisonSlice) -> str:
    """Return the slice's level in a form that an HTML id may contain."""
    return f"{slice_.level:.4g}".replace(".", "-")
