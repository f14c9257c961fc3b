"""Tables of the claims in results/claims.toml: results of this machine, and a comparison with recorded results."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pipeline.analysis.method_claims import ClaimResult, MethodClaim
from pipeline.analysis.results import MISSING, Run
from pipeline.errors import UserError
from pipeline.report.result_file import FOLDER, PrintedTable
from pipeline.report.table_captions import CLAIMS
from pipeline.report.tables import Table, TableColumn, fill_table, format_sign

FILE = "claims.toml"
NOTES = (
    "Verdict holds or fails: the 95% interval over test images and the differences of two or more seeds are all on one "
    "side of 0. Otherwise the verdict is open. Differences are the first method minus the second, in points, for CIDEr "
    "in hundredths. All models share one pretraining. Another pretraining changes differences by up to their size.",
)


def read_claims(root: Path) -> list[MethodClaim]:
    """Read the claims in results/claims.toml below `root`; return [] where the file is missing.

    Raises UserError unless the file is UTF-8 and TOML, and has only [[claim]] tables with the fields of `MethodClaim`.
    """
    path = root / FOLDER / FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; save it as UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML ({error}); correct it there") from None
    if unknown := content.keys() - {"claim"}:
        raise UserError(f"{path}: expected tables [[claim]] only, found {min(unknown)}; rename or remove it")
    try:
        return TypeAdapter(list[MethodClaim]).validate_python(content.get("claim", []))
    except ValidationError as error:
        first = error.errors()[0]
        position = f"claim {'.'.join(map(str, first['loc']))}".rstrip()
        raise UserError(f"{path}: {position}: {first['msg']}; correct it there") from None


def build_claims_table(results: Sequence[ClaimResult], score: str) -> Table:
    """Return a table with a row per claim: the comparison, its seeds, the difference and the verdict.

    `score` is the retrieval metric of claims that name none.
    """
    columns = [
        TableColumn("by", show=lambda result: _name_metric(result.claim, score), text=True),
        TableColumn("at", show=lambda result: result.at, text=True),
        TableColumn("seeds × pretrainings", show=_format_seed_count),
        TableColumn("difference", show=_format_difference, text=True),
        TableColumn("seeds", show=_format_seed_differences, text=True),
        TableColumn("verdict", show=_format_verdict, text=True),
    ]
    rows: list[tuple[str, Sequence[Run], ClaimResult]] = [(result.claim.statement, (), result) for result in results]
    return fill_table("claims", CLAIMS, rows, columns, NOTES, head="Claim")


def list_resampled_points(result: ClaimResult) -> list[float] | None:
    """Return the difference in each resample of the test images; None without resamples.

    The unit and the rounding are those of the table.
    """
    if result.resampled is None:
        return None
    return (np.round(result.resampled * (1 if result.claim.judge else 100), 1) + 0.0).tolist()  # + 0.0: no −0


def compare_claims(measured: Table, recorded: PrintedTable | None) -> Table:
    """Return the table of this run, with the recorded differences and verdicts beside the measured ones.

    Rows correspond by claim and metric. Rows with equal claim and metric correspond by their order.
    """
    recorded_rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    if recorded is not None:
        for row_cells in recorded.rows:
            values = dict(zip(recorded.columns, row_cells, strict=True))
            recorded_rows.setdefault((row_cells[0], row_cells[1]), []).append(values)
    heads = [column.label for column in measured.columns]
    columns = [
        *measured.columns[:3],
        *(TableColumn(name, text=True) for name in ("recorded", "here", "recorded verdict", "verdict")),
    ]
    rows = []
    for row in measured.rows:
        cells, matches = dict(zip(heads, row, strict=True)), recorded_rows.get((row[0], row[1]))
        recorded_cells = matches.pop(0) if matches else {}
        differences = [recorded_cells.get("difference", MISSING), cells["difference"]]
        verdicts = [recorded_cells.get("verdict", MISSING), cells["verdict"]]
        rows.append([*row[:3], *differences, *verdicts])
    return Table("claims", f"{CLAIMS} on this machine", columns, rows, measured.notes, measured.warning)


def _name_metric(claim: MethodClaim, score: str) -> str:
    return f"{claim.score or score} {claim.judge}" if claim.judge else "CIDEr"


def _format_points(result: ClaimResult, value: float) -> str:
    return format_sign(f"{value if result.claim.judge else 100 * value:+.1f}")


def _format_difference(result: ClaimResult) -> str | None:
    if result.value is None:
        return None
    ends = ", ".join(_format_points(result, end) for end in result.interval or ())
    return f"{result.bound}{_format_points(result, result.value)}" + (f" [{ends}]" if ends else "")


def _format_seed_count(result: ClaimResult) -> str | None:
    return f"{len(result.by_seed)} × 1" if result.by_seed else None


def _format_verdict(result: ClaimResult) -> str:
    return f"{result.verdict}: {result.reason}" if result.reason else result.verdict


def _format_seed_differences(result: ClaimResult) -> str | None:
    return ", ".join(_format_points(result, value) for value in result.by_seed.values()) or None
