"""The comparison of curves as tables: at equal CIDEr, at equal recall, differences from a reference, along ρ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.reporting.bootstrap import Keys
from pipeline.reporting.compared import SHORT_OFTEN, Comparison, Difference, Estimate, Reading, RhoSeries, Slice
from pipeline.reporting.results import LANGUAGE, SHORT, Run
from pipeline.reporting.tables import MISSING, RECALLS, Column, Protocols, Table, number, setting


def comparison_tables(comparison: Comparison) -> list[Table]:
    """All of them, in the order in which they are read."""
    tables = []
    for slice_ in comparison.at_cider:
        tables += [at_cider_table(comparison, slice_), significance_table(comparison, slice_)]
    tables += [at_recall_table(comparison, slice_) for slice_ in comparison.at_recall]
    tables += [rho_table(comparison, series) for series in comparison.rho]
    return [table for table in tables if table is not None]


def compact_comparison(comparison: Comparison) -> list[Table]:
    """R@10 at equal CIDEr, and what of it is significant, in tables narrow enough for a terminal."""
    tables = []
    for slice_ in comparison.at_cider:
        full = at_cider_table(comparison, slice_)
        columns = [Column("Method", text=True), *(Column(f"R@10 {judge}") for judge in comparison.judges)]
        protocols = _protocols(slice_.readings)
        rows = [
            [_name(reading, protocols), *(_estimate(reading, _recall(judge, "R@10"), 1) for judge in comparison.judges)]
            for reading in slice_.readings
        ]
        caption = f"R@10 at CIDEr {slice_.level.value:.3f}"
        tables.append(Table("equal-cider-compact", caption, columns, rows, full.notes, full.warning))
        differences = significance_table(comparison, slice_)
        if differences is None or slice_.reference is None:
            continue
        judges = [judge for judge in ("own", "judge") if judge in comparison.judges]
        columns = [Column("Method", text=True)]
        columns += [Column(label) for judge in judges for label in (f"R@10 {judge}", f"p {judge}")]
        rows = []
        for reading in slice_.readings:
            if (found := slice_.differences.get(reading.curve.label)) is not None:
                cells = [cell for judge in judges for cell in _difference(found.get(judge))]
                rows.append([_name(reading, protocols), *cells])
        caption = f"R@10 minus that of {slice_.reference.label}, at CIDEr {slice_.level.value:.3f}"
        tables.append(Table("significance-compact", caption, columns, rows, differences.notes, differences.warning))
    return tables


def at_cider_table(comparison: Comparison, slice_: Slice) -> Table:
    """Recall by every judge where each curve has the same CIDEr (the paper's Tables 2 and 3)."""
    columns = [Column("Method", text=True)]
    columns += [Column(name, SHORT[judge]) for judge in comparison.judges for name in RECALLS]
    columns += [Column("R@10 own", "± over seeds"), Column("R@10 judge", "± over seeds")]
    protocols = _protocols(slice_.readings)
    rows = []
    for reading in slice_.readings:
        row = [_name(reading, protocols)]
        row += [_estimate(reading, _recall(judge, name), 1) for judge in comparison.judges for name in RECALLS]
        rows.append([*row, *(_spread(reading, _recall(judge, "R@10"), 1) for judge in ("own", "judge"))])
    return Table(
        name=f"equal-cider-{_slug(slice_)}",
        caption=f"Recall at equal naturalness, CIDEr {slice_.level.value:.3f}: in %, test split, from caption to image",
        columns=columns,
        rows=rows,
        notes=[comparison.cider_rule, *_notes(comparison, slice_.readings, "CIDEr", 3), *protocols.notes],
        warning=protocols.warning,
    )


def at_recall_table(comparison: Comparison, slice_: Slice) -> Table:
    """Language metrics where each curve has the same recall by its own listener (the paper's Tables 1 and 6)."""
    measured = {keys[1] for reading in slice_.readings for keys in reading.estimates}
    metrics = [name for name in LANGUAGE if name in measured or name == "CIDEr"]
    columns = [Column("Method", text=True), *(Column(name) for name in metrics), Column("CIDEr", "± over seeds")]
    protocols = _protocols(slice_.readings)
    rows = [
        [
            _name(reading, protocols),
            *(_estimate(reading, ("language", name), 3) for name in metrics),
            _spread(reading, ("language", "CIDEr"), 3),
        ]
        for reading in slice_.readings
    ]
    value = f"{slice_.level.value:.4g}"
    return Table(
        name=f"equal-recall-{_slug(slice_)}",
        caption=f"Naturalness at equal discriminability, {comparison.recall} {value}% by the own listener: test split",
        columns=columns,
        rows=rows,
        notes=[comparison.recall_rule, *_notes(comparison, slice_.readings, comparison.recall, 1), *protocols.notes],
        warning=protocols.warning,
    )


def significance_table(comparison: Comparison, slice_: Slice) -> Table | None:
    """Every method's R@10 minus the reference's at equal CIDEr; None where nothing can be subtracted."""
    if slice_.reference is None or not slice_.differences:
        return None
    shown = [reading for reading in slice_.readings if reading.curve.label in slice_.differences]
    base = [reading for reading in slice_.readings if reading.curve is slice_.reference]
    protocols = _protocols([*shown, *base])
    columns = [Column("Method", text=True)]
    columns += [Column(label, SHORT[judge]) for judge in comparison.judges for label in ("Δ R@10", "p")]
    rows = []
    for reading in shown:
        found = slice_.differences[reading.curve.label]
        cells = [cell for judge in comparison.judges for cell in _difference(found.get(judge))]
        rows.append([_name(reading, protocols), *cells])
    count = sum(map(len, slice_.differences.values()))
    return Table(
        name=f"significance-{_slug(slice_)}",
        caption=f"R@10 minus that of {slice_.reference.label}, at CIDEr {slice_.level.value:.3f}",
        columns=columns,
        rows=rows,
        notes=[
            f"Differences of {comparison.resamples:,} paired resamples of the test images (the same for both methods, "
            "seeds averaged), with their 95% intervals; marked * where the interval excludes 0.",
            f"p is two-sided, from the resamples' standard deviation, and Holm-adjusted for all {count} differences "
            "(of every judge); the intervals are not adjusted. Training again would add the spread over seeds.",
            *protocols.notes,
        ],
        warning=protocols.warning,
    )


def rho_table(comparison: Comparison, series: RhoSeries) -> Table:
    """R@10 against ρ at one CIDEr (the paper's Figure 4)."""
    protocols = _protocols(series.readings)
    columns = [Column("ρ", text=True), *(Column(SHORT[judge], "R@10") for judge in comparison.judges)]
    columns += [Column("own", "± over seeds")]
    rows = []
    for reading in series.readings:
        marks = _mark(reading) + protocols.mark(_runs(reading))
        row = [setting(reading.curve.points[0], "rho") + marks]
        row += [_estimate(reading, _recall(judge, "R@10"), 1) for judge in comparison.judges]
        rows.append([*row, _spread(reading, _recall("own", "R@10"), 1)])
    return Table(
        name=f"rho-{series.method}",
        caption=f"{series.method}: R@10 in % against ρ, at CIDEr {series.cider:.3f}, test split",
        columns=columns,
        rows=rows,
        notes=[
            "Fixed CIDEr: the highest to which the curves of every ρ come.",
            *_notes(comparison, series.readings, "CIDEr", 3),
            *protocols.notes,
        ],
        warning=protocols.warning,
    )


def _notes(comparison: Comparison, readings: Sequence[Reading], what: str, digits: int) -> list[str]:
    """How the numbers were read, which intervals they have, and which curves do not come so far."""
    notes = [
        "Read from each method's curve along λ (seeds averaged): settings that contradict the trade-off of CIDEr and "
        "the own listener's recall are pooled, between neighbours it is linear, beyond the last setting there is none."
    ]
    known = [reading for reading in readings if reading.reached]
    if any(estimate.interval for reading in known for estimate in reading.estimates.values()):
        moving = f"; in each, the fixed CIDEr is the same share of that of {comparison.control}"
        notes.append(
            f"[95% intervals] over {comparison.resamples:,} resamples of the test images, with these trained models"
            + (moving if what == "CIDEr" and comparison.control else "")
            + "."
        )
    if any(estimate.spread is not None for reading in known for estimate in reading.estimates.values()):
        notes.append(
            "± is the standard deviation over (n) seeds, each read from its own curve where that comes so far."
        )
    if any(_mark(reading) == "§" for reading in readings):
        notes.append(
            f"Marked §: the whole curve lies at a higher {what}; its lowest setting stands, so the method has at least "
            "this."
        )
    if any(_mark(reading) == "‡" for reading in readings):
        notes.append(
            f"Marked ‡: in more than {SHORT_OFTEN:.0%} of the resamples the curve ends before this value; "
            "there its last setting stands."
        )
    short = [reading for reading in readings if not reading.reached]
    if short:
        notes.append(f"Not reached ({what} measured): {'; '.join(_ends(reading, digits) for reading in short)}.")
    return [*notes, *comparison.notes]


def _ends(reading: Reading, digits: int) -> str:
    if reading.span is None:
        return f"{reading.curve.label} not measured"
    low, high = (f"{end:.{digits}f}" for end in reading.span)
    return f"{reading.curve.label} {low}" + ("" if low == high else f" to {high}")


def _estimate(reading: Reading, keys: Keys, digits: int) -> str:
    found = reading.estimates.get(keys)
    if found is None:
        return MISSING
    text = number(found.value, digits)
    return text if found.interval is None else f"{text} {_interval(found, digits)}"


def _interval(estimate: Estimate | Difference, digits: int) -> str:
    low, high = estimate.interval or (None, None)
    return f"[{number(low, digits)}, {number(high, digits)}]"


def _spread(reading: Reading, keys: Keys, digits: int) -> str:
    found = reading.estimates.get(keys)
    if found is None or found.spread is None:
        return MISSING
    return f"{number(found.spread, digits)} ({found.seeds})"


def _difference(difference: Difference | None) -> tuple[str, str]:
    if difference is None:
        return MISSING, MISSING
    mark = "*" if difference.clear else ""
    p = "<0.001" if difference.p < 0.001 else f"{difference.p:.3f}"
    return (
        f"{_signed(difference.value)} [{_signed(difference.interval[0])}, {_signed(difference.interval[1])}]{mark}",
        p,
    )


def _signed(value: float) -> str:
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def _name(reading: Reading, protocols: Protocols) -> str:
    return reading.curve.label + _mark(reading) + protocols.mark(_runs(reading))


def _mark(reading: Reading) -> str:
    if reading.above:
        return "§"
    return "‡" if reading.reached and reading.short > SHORT_OFTEN else ""


def _protocols(readings: Iterable[Reading]) -> Protocols:
    return Protocols(run for reading in readings for run in _runs(reading))


def _runs(reading: Reading) -> list[Run]:
    return [run for point in reading.curve.points for run in point.runs]


def _recall(judge: str, recall: str) -> Keys:
    return judge, "text_to_image", recall


def _slug(slice_: Slice) -> str:
    """A part of a name that can be an HTML id."""
    return f"{slice_.level.value:.4g}".replace(".", "-")
