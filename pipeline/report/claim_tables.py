"""Claim tables: the claims of results/claims.toml as measured on this machine, compared with the recorded results."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.analysis.method_claims import ClaimResult, MethodClaim
from pipeline.analysis.results import MISSING, Run
from pipeline.errors import UserError
from pipeline.report.result_file import FOLDER, PrintedTable
from pipeline.report.tables import Table, TableColumn, fill_table, typographic_sign

FILE = "claims.toml"
CAPTION = "Claims"
NOTES = (
    "holds or fails: the 95% interval over test images is on one side of 0, and so is every seed's difference, of two "
    "seeds at least; else open. In points, CIDEr in hundredths, of the method named first minus the other. One "
    "pretraining: another one changes differences by as much as their size.",
)


def read_claims(root: Path) -> list[MethodClaim]:
    """Read all claims; [] if there is no file. Raises UserError where the file does not have the expected form."""
    path = root / FOLDER / FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return TypeAdapter(list[MethodClaim]).validate_python(content.get("claim", []))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: claim {place}: {first['msg']}") from None


def claims_table(results: Sequence[ClaimResult], score: str) -> Table:
    """Return a table with a row per claim: the comparison, its seeds, the difference and the verdict."""
    columns = [
        TableColumn("by", show=lambda each: _by(each.claim, score), text=True),
        TableColumn("at", show=lambda each: each.at, text=True),
        TableColumn("seeds × pretrainings", show=lambda each: f"{len(each.by_seed)} × 1" if each.by_seed else None),
        TableColumn("difference", show=_difference, text=True),
        TableColumn("seeds", show=_seeds, text=True),
        TableColumn("verdict", show=lambda each: each.verdict + (f": {each.reason}" if each.reason else ""), text=True),
    ]
    rows: list[tuple[str, Sequence[Run], ClaimResult]] = [(each.claim.says, (), each) for each in results]
    return fill_table("claims", CAPTION, rows, columns, NOTES, head="Claim")


def compare_claims(here: Table, recorded: PrintedTable | None) -> Table:
    """Return the table with the recorded differences and verdicts next to this run's."""
    known = (
        {(row[0], row[1]): dict(zip(recorded.columns, row, strict=True)) for row in recorded.rows} if recorded else {}
    )
    heads = [column.label for column in here.columns]
    columns = [
        *here.columns[:3],
        *(TableColumn(name, text=True) for name in ("recorded", "here", "recorded verdict", "verdict")),
    ]
    rows = []
    for row in here.rows:
        now, then = dict(zip(heads, row, strict=True)), known.get((row[0], row[1]), {})
        beside = [then.get("difference", MISSING), now["difference"], then.get("verdict", MISSING), now["verdict"]]
        rows.append([*row[:3], *beside])
    return Table("claims", f"{CAPTION} on this machine", columns, rows, here.notes, here.warning)


def _by(claim: MethodClaim, score: str) -> str:
    return f"{claim.score or score} {claim.judge}" if claim.judge else "CIDEr"


def _points(result: ClaimResult, value: float) -> str:
    return typographic_sign(f"{value if result.claim.judge else 100 * value:+.1f}")


def _difference(result: ClaimResult) -> str | None:
    if result.value is None:
        return None
    ends = ", ".join(_points(result, end) for end in result.interval or ())
    return f"{result.bound}{_points(result, result.value)}" + (f" [{ends}]" if ends else "")


def _seeds(result: ClaimResult) -> str | None:
    return ", ".join(_points(result, value) for value in result.by_seed.values()) or None
