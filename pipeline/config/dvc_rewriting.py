"""Comparison of parameter files that DVC has rewritten, as `dvc exp run -S` does.

DVC keeps values and comments, but it leaves null blank, wraps long values in braces, and moves comments within lines.
"""

from __future__ import annotations

import re

NULL = re.compile(r"(?<=[:,\[-]) *null(?= *(?:[,}\]]|$))")
BRACKETS = re.compile(r"(?<=[{\[]) +| +(?=[,}\]])")  # blanks within brackets


def remove_comment(line: str) -> str:
    """Return a line of YAML without its comment."""
    return _split_comment(line)[0].rstrip()


def remove_layout(text: str) -> list[str]:
    """Return the lines of a parameter file in a form that DVC's rewriting does not change."""
    lines: list[str] = []
    depth = 0
    for line in text.splitlines():
        code, mark, comment = _split_comment(line)
        if depth:
            lines[-1] += " " + code.strip()
        else:
            lines.append(code.rstrip())
        depth += sum((letter in "{[") - (letter in "}]") for letter in code)
        if not depth:
            lines[-1] = BRACKETS.sub("", NULL.sub("", lines[-1]))
            lines[-1] += f" {mark}{comment}" if mark else ""
    return lines


def _split_comment(line: str) -> tuple[str, str, str]:
    """Split a line into its code, "#" and the comment; the last two are empty without a comment."""
    for match in re.finditer(r"(?:^|(?<=\s))#", line):
        if not line.count('"', 0, match.start()) % 2:
            return line[: match.start()], "#", line[match.end() :]
    return line, "", ""
