"""Escaping of untrusted text in CSV and Markdown, so that it is shown literally and never interpreted."""

from __future__ import annotations

import re
from typing import Any

from pipeline.errors import escape_line

FORMULAS = frozenset("=+-@＝＋－＠")


def escape_csv_cell(value: Any) -> Any:
    """Escape a text for CSV; return other values unchanged.

    A text that a spreadsheet would compute as a formula gets an apostrophe as a prefix. Carriage returns become spaces,
    and a text with lone surrogates is escaped by `escape_line`.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # a lone carriage return would end a row
    if re.search("[\ud800-\udfff]", text):  # lone surrogates, as in file names that are not UTF-8
        text = escape_line(text)
    first = next((character for character in text if character.isprintable() and not character.isspace()), "")
    return f"'{text}" if text.startswith("\t") or first in FORMULAS else text


def escape_markdown_text(value: Any) -> str:
    """Escape `value` for Markdown as text in one line: no markup, no HTML, no list or heading."""
    text = " ".join(escape_line(str(value)).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"[\\`*_\[\]|~$]", r"\\\g<0>", text)
    return re.sub(r"^(\s*\d*)(?=[#+=.)-](?:\D|$))", r"\1\\", text)  # the start of a heading or a list


def format_markdown_code(value: Any) -> str:
    """Format `value` as code in Markdown, in one line; backticks become apostrophes."""
    return "`" + (escape_line(str(value)).replace("`", "'") or " ") + "`"
