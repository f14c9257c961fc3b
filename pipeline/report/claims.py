"""The claims of results/claims.toml as a run of this machine has them, and beside what was recorded."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.analysis.claims import Claim, Found
from pipeline.analysis.results import MISSING, Run
from pipeline.errors import UserError
from pipeline.report.result_file import FOLDER, Printed
from pipeline.report.tables import Column, Table, filled, signed

FILE = "claims.toml"
CAPTION = "Claims"
NOTES = (
    "holds or fails: the 95% interval over test images is on one side of 0, and so is every seed's difference, of two "
    "seeds at least; else open. In points, CIDEr in hundredths, of the method named first minus the other. One "
    "pretraining: another moves methods by as much as they differ.",
)


def read_claims(root: Path) -> list[Claim]:
    """All claims, none where there is no file; UserError where it is not of that form."""
    path = root / FOLDER / FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return TypeAdapter(list[Claim]).validate_python(content.get("claim", []))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: claim {place}: {first['msg']}") from None


def claims_table(found: Sequence[Found], score: str) -> Table:
    """A row a claim: what was compared, seeds, the difference and the verdict."""
    columns = [
        Column("by", show=lambda found: _by(found.claim, score), text=True),
        Column("at", show=lambda found: found.at, text=True),
        Column("seeds × pretrainings", show=lambda found: f"{len(found.by_seed)} × 1" if found.by_seed else None),
        Column("difference", show=_difference, text=True),
        Column("seeds", show=_seeds, text=True),
        Column("verdict", show=lambda found: found.verdict + (f": {found.reason}" if found.reason else ""), text=True),
    ]
    rows: list[tuple[str, Sequence[Run], Found]] = [(each.claim.says, (), each) for each in found]
    return filled("claims", CAPTION, rows, columns, NOTES, head="Claim")


def compared(here: Table, recorded: Printed | None) -> Table:
    """The table with the recorded differences and verdicts beside this run's."""
    known = (
        {(row[0], row[1]): dict(zip(recorded.columns, row, strict=True)) for row in recorded.rows} if recorded else {}
    )
    heads = [column.label for column in here.columns]
    columns = [
        *here.columns[:3],
        *(Column(name, text=True) for name in ("recorded", "here", "recorded verdict", "verdict")),
    ]
    rows = []
    for row in here.rows:
        now, then = dict(zip(heads, row, strict=True)), known.get((row[0], row[1]), {})
        beside = [then.get("difference", MISSING), now["difference"], then.get("verdict", MISSING), now["verdict"]]
        rows.append([*row[:3], *beside])
    return Table("claims", f"{CAPTION} on this machine", columns, rows, here.notes, here.warning)


def _by(claim: Claim, score: str) -> str:
    return f"{claim.score or score} {claim.judge}" if claim.judge else "CIDEr"


def _points(found: Found, value: float) -> str:
    return signed(f"{value if found.claim.judge else 100 * value:+.1f}")


def _difference(found: Found) -> str | None:
    if found.value is None:
        return None
    ends = ", ".join(_points(found, end) for end in found.interval or ())
    return f"{found.bound}{_points(found, found.value)}" + (f" [{ends}]" if ends else "")


def _seeds(found: Found) -> str | None:
    return ", ".join(_points(found, value) for value in found.by_seed.values()) or None
