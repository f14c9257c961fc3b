"""Results over several starts, which repeat drawn data, detectors, pretraining and joint training with another seed.

A start is recorded as results/NAME@startN.json. The summary results/NAME.json has the means of results and budgets over
starts, their standard deviations between starts, and each claim's interval over starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import NamedTuple

from pipeline.analysis.results import MISSING
from pipeline.errors import UserError
from pipeline.report.result_file import FOLDER, ImageResamples, PrintedTable, ResultFile, read_result
from pipeline.report.table_captions import BUDGET, CLAIMS, RESULTS
from pipeline.report.tables import format_sign

OVER_STARTS = "Results over starts"
BUDGET_OVER_STARTS = "Budget over starts"
CLAIMS_OVER_STARTS = "Claims over starts"
MIN_STARTS = 3  # starts that a verdict needs
_NUMBER = re.compile(r"[≥≤]?([+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)")


class RecordedComparison(NamedTuple):
    """Numbers of a run beside those of recorded starts: the table, and a line per number outside its interval."""

    table: PrintedTable
    outliers: list[str]
    compared: int  # numbers with a 95 % prediction interval


@dataclass(frozen=True)
class Spread:
    """Values of one number, one per start: the mean over the start's seeds of joint training.

    `image_variance` is the variance of their mean over draws of the test images, where all starts have the same images.
    It is 0 where each start draws its own images.
    """

    values: tuple[float, ...]
    image_variance: float = 0.0

    @property
    def mean(self) -> float:
        """Return the mean over starts."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Return the standard deviation between starts; None for one start."""
        return stdev(self.values) if len(self.values) > 1 else None

    def compute_interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean over starts, seeds and test images; None for one start.

        Where each start has its own images, a start's value contains the effects of its seeds and images. The interval
        is then Student's over n starts, with n − 1 degrees of freedom. Where starts share images, the variance over
        images is added to that over starts, with the degrees of freedom of Satterthwaite (1946). Both intervals
        contain the interaction of starts and images, so they are too wide rather than too narrow. The second interval
        is never narrower than Student's.
        """
        ends = self._scale_interval(1 / len(self.values))
        if ends is None or not self.image_variance:
            return ends
        from scipy.special import stdtrit

        start_variance = stdev(self.values) ** 2 / len(self.values)
        total_variance = start_variance + self.image_variance
        freedom = (len(self.values) - 1) * (total_variance / max(start_variance, 1e-6 * total_variance)) ** 2
        half = max(ends[1] - self.mean, float(stdtrit(freedom, 0.975)) * math.sqrt(total_variance))
        return self.mean - half, self.mean + half

    def predict_next_start(self) -> tuple[float, float] | None:
        """Return the 95 % prediction interval of another start's value; None for one start."""
        return self._scale_interval(1 + 1 / len(self.values))

    def _scale_interval(self, factor: float) -> tuple[float, float] | None:
        from scipy.special import stdtrit  # the quantile of scipy.stats.t, whose import takes half a second

        if self.deviation is None:
            return None
        half = float(stdtrit(len(self.values) - 1, 0.975)) * self.deviation * math.sqrt(factor)
        return self.mean - half, self.mean + half

    @property
    def verdict(self) -> str:
        """Return "holds" or "fails" if the interval over at least three starts is on one side of 0, else "open"."""
        ends = self.compute_interval()
        if ends is None or len(self.values) < MIN_STARTS:
            return "open"
        if ends[0] > 0:
            return "holds"
        return "fails" if ends[1] < 0 else "open"


def read_starts(root: Path, name: str) -> dict[int, ResultFile]:
    """Return the recorded starts of the profile `name`, by number; raises UserError for an invalid file."""
    starts = {}
    for path in (root / FOLDER).glob(f"{name}@start*.json"):
        if number := re.fullmatch(rf"{re.escape(name)}@start(\d+)", path.stem):
            starts[int(number[1])] = read_result(root, path.stem)
    return dict(sorted(starts.items()))


def summarise_starts(starts: Mapping[int, ResultFile]) -> ResultFile:
    """Return the summary of recorded starts.

    Without a table of caption results, as for dialogs, the summary has each table whose rows and columns agree in all
    starts, except the claims. Raises UserError as `build_results_over_starts` and `build_claims_over_starts` do.
    """
    files = list(starts.values())
    shared_names = [name for name in files[0].tables if all(name in file.tables for file in files)]
    if RESULTS in shared_names:
        tables = {OVER_STARTS: build_results_over_starts([file.table(RESULTS) for file in files])}
        if CLAIMS in shared_names:
            tables[CLAIMS_OVER_STARTS] = build_claims_over_starts(
                [file.tables[CLAIMS] for file in files], [file.resamples for file in files]
            )
        if BUDGET in shared_names:
            tables[BUDGET_OVER_STARTS] = build_results_over_starts([file.tables[BUDGET] for file in files])
    else:
        equal_names = (
            name
            for name in shared_names
            if name != CLAIMS and len({_list_headings(file.tables[name]) for file in files}) == 1
        )
        tables = {name: _average_over_starts([file.tables[name] for file in files]) for name in equal_names}
    return ResultFile(
        command=" and ".join(file.command for file in files),
        commit=", ".join(dict.fromkeys(file.commit for file in files)),
        date=max(file.date for file in files),
        machine="; ".join(dict.fromkeys(file.machine for file in files)),
        seeds=list(starts),
        tables=tables,
        figures=files[-1].figures,
    )


def _list_headings(table: PrintedTable) -> tuple[str, ...]:
    """Return the names of the columns and rows."""
    return (*table.columns, *(_remove_marks(row[0]) for row in table.rows))


def _average_over_starts(tables: Sequence[PrintedTable]) -> PrintedTable:
    return (build_claims_over_starts if "verdict" in tables[0].columns else build_results_over_starts)(tables)


def measure_spreads(tables: Sequence[PrintedTable]) -> dict[tuple[str, str], Spread]:
    """Return the spread of each number of the starts' tables, by row and column, where every start has the number.

    A bound, such as ≥2.0, is no number. Raises UserError where the rows or columns of the tables differ.
    """
    _check_headings(tables)
    spread_by_cell = {}
    for n, row in enumerate(tables[0].rows):
        for m, column in enumerate(tables[0].columns[1:], 1):
            if (spread := _compute_spread([table.rows[n][m] for table in tables], len(tables))) is not None:
                spread_by_cell[_remove_marks(row[0]), column] = spread
    return spread_by_cell


def _check_headings(tables: Sequence[PrintedTable]) -> None:
    if len({_list_headings(table) for table in tables}) > 1:
        raise UserError("the recorded starts differ in methods or columns: record them again")


def build_results_over_starts(tables: Sequence[PrintedTable]) -> PrintedTable:
    """Return a table of every number's mean ± standard deviation between starts; equal cells are unchanged.

    Raises UserError where the rows or columns of the tables differ.
    """
    _check_headings(tables)
    rows = []
    for same_rows in zip(*(table.rows for table in tables), strict=True):
        cells = [_remove_marks(same_rows[0][0])]
        for by_start in islice(zip(*same_rows, strict=True), 1, None):
            spread = _compute_spread(by_start, len(tables))
            number = MISSING if spread is None else _format_with_deviation(spread, max(map(_count_decimals, by_start)))
            cells.append(by_start[0] if len({*by_start}) == 1 else number)
        rows.append(cells)
    return PrintedTable(columns=list(tables[0].columns), rows=rows)


def build_claims_over_starts(
    tables: Sequence[PrintedTable], resamples: Sequence[ImageResamples | None] = ()
) -> PrintedTable:
    """Return a table of each claim's mean difference and 95 % interval, every start's difference, and the verdict.

    The columns before the differences identify a claim, except for numbers of seeds. The claims come from the first
    start's table. Intervals cover test images that all starts share if the starts have `resamples` of these images.
    Raises UserError if only some starts have `resamples`, or if these differ in images or number.
    """
    _check_resamples(resamples)
    columns = tables[0].columns
    position = next(n for n, column in enumerate(columns) if column.startswith("difference"))
    keys = [n for n in range(position) if not columns[n].startswith("seeds")]
    rows = []
    for row in tables[0].rows:
        claim = [row[n] for n in keys]
        claim_rows = [
            (start, row_number)
            for start, table in enumerate(tables)
            for row_number, other in enumerate(table.rows)
            if [other[n] for n in keys] == claim
        ]
        cells = [tables[start].rows[row_number][position] for start, row_number in claim_rows]
        spread = _compute_spread(cells, len(tables))
        difference, by_start, verdict = MISSING, MISSING, "open"
        if spread is not None:
            spread = replace(spread, image_variance=_compute_image_variance(resamples, claim_rows))
            digits = max(map(_count_decimals, cells))
            ends, verdict = spread.compute_interval(), spread.verdict
            interval = f" [{_format_signed(ends[0], digits)}, {_format_signed(ends[1], digits)}]" if ends else ""
            difference = _format_signed(spread.mean, digits) + interval
            by_start = ", ".join(_format_signed(value, digits) for value in spread.values)
        rows.append([*claim, str(len(tables)), difference, by_start, verdict])
    return PrintedTable(
        columns=[*(columns[n] for n in keys), "starts", columns[position], "by start", "verdict"], rows=rows
    )


def _check_resamples(resamples: Sequence[ImageResamples | None]) -> None:
    known = [each for each in resamples if each]
    if known and len(known) < len(resamples):
        problem = "only some of the recorded starts have differences in resamples of the test images"
    elif len({each.images for each in known}) > 1:
        problem = "the recorded starts have different prepared data"
    elif len({len(numbers) for each in known for numbers in each.differences if numbers}) > 1:
        problem = "the recorded starts have different numbers of resamples"
    else:
        return
    raise UserError(f"{problem}, so their claims have no common interval: record all starts again")


def _compute_image_variance(resamples: Sequence[ImageResamples | None], claim_rows: Sequence[tuple[int, int]]) -> float:
    """Return the variance over draws of shared test images of a claim's mean difference over starts.

    Without resamples the variance is 0.0. `claim_rows` has the start and the row of each start's claim. A start without
    resamples of the claim is left out. The mean then has fewer starts, so its variance is too large rather than too
    small.
    """
    differences = [
        each.differences[row] for start, row in claim_rows if (each := resamples[start] if resamples else None)
    ]
    numbers = [each for each in differences if each]
    return variance([fmean(each) for each in zip(*numbers, strict=True)]) if numbers else 0.0


def compare_with_recorded(
    table: PrintedTable, recorded: Sequence[PrintedTable], signed: bool = False
) -> RecordedComparison:
    """Compare this run's numbers with the recorded ones, and show the recorded mean ± deviation beside each.

    A column without a recorded number is omitted. An outlier lies outside the 95 % prediction interval of another
    start. A number is not compared with one recorded start alone, nor where all recorded starts have the same number.
    With `signed`, recorded means have a sign. Raises UserError where the rows or columns of the recorded tables differ.
    """
    spreads, first = measure_spreads(recorded), recorded[0]
    digits = {column: _count_column_decimals(first, column) for column in first.columns}
    rows, outliers, compared = [], [], 0
    shared_columns = [
        column for column in table.columns[1:] if any((_remove_marks(row[0]), column) in spreads for row in table.rows)
    ]
    for row in table.rows:
        cells = [row[0]]
        for column in shared_columns:
            cell, spread = row[table.columns.index(column)], spreads.get((_remove_marks(row[0]), column))
            value = _parse_number(cell)
            if spread is None or value is None or not spread.deviation:
                cells.append(cell)
                continue
            cells.append(f"{cell} ({_format_with_deviation(spread, digits[column], signed)})")
            ends = spread.predict_next_start()
            compared += ends is not None
            if ends and not ends[0] <= value <= ends[1]:
                show = _format_signed if signed else _format_unsigned
                low, high = (show(end, digits[column]) for end in ends)
                outliers.append(f"{row[0]}, {column}: {cell} is outside {low} to {high}, the 95 % prediction interval")
        rows.append(cells)
    return RecordedComparison(PrintedTable(columns=[table.columns[0], *shared_columns], rows=rows), outliers, compared)


def compare_differences_with_recorded(table: PrintedTable, recorded: Sequence[PrintedTable]) -> RecordedComparison:
    """Return `compare_with_recorded` of each row's differences from the first row, the control.

    A start's images may be harder or easier for all methods at once, so differences vary less between starts than the
    numbers themselves. Columns that are equal in all recorded starts are omitted, such as λ. Raises UserError where the
    rows or columns of the recorded tables differ.
    """
    varying = {column for (_, column), spread in measure_spreads(recorded).items() if spread.deviation}
    columns = [column for column in recorded[0].columns if column in varying and column in table.columns]
    return compare_with_recorded(
        _subtract_control(table, columns), [_subtract_control(each, columns) for each in recorded], signed=True
    )


def _subtract_control(table: PrintedTable, columns: Sequence[str]) -> PrintedTable:
    """Return the numbers of `columns` minus those of the first row, for every other row; no row for an empty table."""
    positions = [table.columns.index(column) for column in columns]
    rows = []
    for row in table.rows[1:]:
        control = table.rows[0]
        cells = [f"{_remove_marks(row[0])} − {_remove_marks(control[0])}"]
        for n in positions:
            value, reference = _parse_number(row[n]), _parse_number(control[n])
            digits = max(_count_decimals(row[n]), _count_decimals(control[n]))
            if value is None or reference is None:
                cells.append(MISSING)
            else:
                cells.append(_format_signed(value - reference, digits))
        rows.append(cells)
    return PrintedTable(columns=[table.columns[0], *columns], rows=rows)


def _remove_marks(method: str) -> str:
    """Return a method's name without the marks of its selection basis, which differ between starts."""
    return method.rstrip("*†")


def _count_column_decimals(table: PrintedTable, column: str) -> int:
    position = table.columns.index(column)
    return max((_count_decimals(row[position]) for row in table.rows), default=0)


def _count_decimals(cell: str) -> int:
    """Return the number of decimals of the number at the beginning of the cell."""
    number = _NUMBER.match(cell)
    mantissa, _, exponent = number[1].partition("e") if number else ("", "", "")
    return max(len(mantissa.partition(".")[2]) - int(exponent or 0), 0)


def _compute_spread(cells: Sequence[str], starts: int) -> Spread | None:
    """Return the spread of the starts' numbers; None where a start has no number, or only a bound."""
    numbers = [_parse_number(cell) for cell in cells if not cell.startswith(("≥", "≤"))]
    known_numbers = [number for number in numbers if number is not None]
    return Spread(tuple(known_numbers)) if len(known_numbers) == starts else None


def _parse_number(cell: str) -> float | None:
    """Return the number at the beginning of the cell; None without a number."""
    number = _NUMBER.match(cell)
    return float(number[1].replace("−", "-").replace(",", "")) if number else None


def _format_signed(value: float, digits: int) -> str:
    return format_sign(f"{value:+.{digits}f}")


def _format_unsigned(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _format_with_deviation(spread: Spread, digits: int, signed: bool = False) -> str:
    mean = _format_signed(spread.mean, digits) if signed else f"{spread.mean:,.{digits}f}"
    return mean if spread.deviation is None else f"{mean}±{spread.deviation:,.{digits}f}"
