"""Text of others inside CSV and Markdown: it is shown as it is written, and nothing there obeys it."""

from __future__ import annotations

import re
from typing import Any

from pipeline.errors import one_line

FORMULAS = tuple("=+-@＝＋－＠")


def csv_cell(value: Any) -> Any:
    """Mark a text that a spreadsheet would compute by an apostrophe; numbers and other texts stay as they are."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # alone, it would end a row
    if re.search("[\ud800-\udfff]", text):  # half characters, as in names of files that are not UTF-8
        text = one_line(text)
    return f"'{text}" if text.startswith("\t") or text.lstrip().startswith(FORMULAS) else text


def markdown_text(value: Any) -> str:
    """Escape `value` for Markdown, so that it is text in one line: no markup, no HTML, no list or heading."""
    text = " ".join(one_line(str(value)).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"[\\`*_\[\]|~$]", r"\\\g<0>", text)
    return re.sub(r"^(\s*\d*)(?=[#+=.)-](?:\D|$))", r"\1\\", text)  # what would begin a heading or a list


def markdown_code(value: Any) -> str:
    """Show `value` as code in Markdown, in one line."""
    return "`" + (one_line(str(value)).replace("`", "'") or " ") + "`"
