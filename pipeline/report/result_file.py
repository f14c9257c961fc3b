"""Result files, `results/<name>.json`: tables and figures as a command printed them, with commit and machine."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from pipeline.errors import UserError
from pipeline.report.method_names import replace_method_names
from pipeline.report.table_captions import CLAIMS

FOLDER = "results"


class _FrozenModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PrintedTable(_FrozenModel):
    """Table of text cells; the first column names the rows.

    Raises ValueError for a table without columns, for equal column names, and unless each row has one cell per column.
    """

    columns: list[str]
    rows: list[list[str]]

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if not self.columns:
            raise ValueError("a table has no column")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("two columns have the same name")
        for n, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                raise ValueError(f"row {n} has {len(row)} cells, where there are {len(self.columns)} columns")
        return self


class PrintedFigure(_FrozenModel):
    """Figure: its file below the repository's root, and the SHA-256 of the file."""

    file: str
    sha256: str


class ImageResamples(_FrozenModel):
    """Differences of claims in resamples of test images that other starts have, too.

    `images` is a digest of the prepared data. `differences` has a list for each row of the table of claims, in the
    table's unit, or null where the claim has no resamples. The resamples are the same in all starts.
    """

    images: str
    differences: list[list[float] | None]


class ResultFile(_FrozenModel):
    """Results of one command; tables are keyed by caption, figures by the name of their original file."""

    command: str
    commit: str
    date: str
    machine: str
    seeds: list[int]
    note: str = ""
    tables: dict[str, PrintedTable] = {}
    figures: dict[str, PrintedFigure] = {}
    resamples: ImageResamples | None = None

    @model_validator(mode="after")
    def _check_resamples(self) -> Self:
        if self.resamples and (lists := len(self.resamples.differences)) != (rows := len(self.table(CLAIMS).rows)):
            raise ValueError(f"resamples: expected a list for each of the {rows} claims, found {lists}")
        return self

    def table(self, beginning: str) -> PrintedTable:
        """Return the table whose caption equals or begins with `beginning`.

        Methods may be named as in params.yaml or as published. An equal caption is found without the published names,
        whose look-up imports torch. Raises UserError unless exactly one table matches.
        """
        if beginning in self.tables:
            return self.tables[beginning]
        tables, start = (
            {replace_method_names(name): table for name, table in self.tables.items()},
            replace_method_names(beginning),
        )
        names = [start] if start in tables else [name for name in tables if name.startswith(start)]
        if len(names) != 1:
            if names:
                raise UserError(
                    f"has {len(names)} tables that begin with “{beginning}”; name one of {'; '.join(names)}"
                )
            raise UserError(f"has no table “{beginning}”; there are: {'; '.join(tables) or 'none'}")
        return tables[names[0]]

    def figure(self, name: str) -> PrintedFigure:
        """Return a figure; raises UserError if there is no such figure."""
        if name not in self.figures:
            raise UserError(f"has no figure “{name}”; there are: {'; '.join(self.figures) or 'none'}")
        return self.figures[name]

    def text(self) -> str:
        """Return the file as JSON, with one line for each row of a table."""
        return _format_json(self.model_dump(exclude_defaults=True)) + "\n"


def locate_result_file(root: Path, name: str) -> Path:
    """Return the path of the result file `name` below the repository's root."""
    return root / FOLDER / f"{name}.json"


def read_result(root: Path, name: str) -> ResultFile:
    """Read `results/<name>.json` below `root`; raises UserError if it is missing or invalid."""
    path, shown_path = locate_result_file(root, name), locate_result_file(Path(), name)
    try:
        return ResultFile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        close = difflib.get_close_matches(name, sorted(other.stem for other in path.parent.glob("*.json")), n=1)
        suggestion = f"did you mean {close[0]}? " if close else ""
        raise UserError(f"{shown_path} is missing; {suggestion}make record PROFILE={name} writes it") from None
    except ValidationError as error:
        first = error.errors()[0]
        position = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{shown_path} is not a result file: {position + ': ' if position else ''}{first['msg']}; record it again"
        ) from None


def _format_json(value: Any, indent: str = "") -> str:
    """Return mappings and lists of lists as JSON with one line per item, and everything else on one line."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        items = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_format_json(item, inner)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(inner + _format_json(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)
