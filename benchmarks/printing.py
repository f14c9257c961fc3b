"""Markdown tables printed row by row during measurement; `make record PROFILE=benchmarks` reads them."""

from __future__ import annotations

import sys
from collections.abc import Callable


def begin_table(caption: str, *columns: str, first: int = 24) -> Callable[..., None]:
    """Print a table's head, and return a function that prints a row; `first`: minimum width of the first column."""
    widths = [max(first, len(columns[0])), *(max(7, len(column)) for column in columns[1:])]

    def print_row(*cells: object) -> None:
        texts = [str(cell) for cell in cells]
        rest = (text.rjust(width) for text, width in zip(texts[1:], widths[1:], strict=True))
        print(f"| {' | '.join([texts[0].ljust(widths[0]), *rest])} |", flush=True)

    print(f"\n**{caption}**\n", flush=True)
    print_row(*columns)
    print_row("-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:]))
    return print_row


def show_progress(activity: str) -> None:
    """Print the current work on stderr, because `make record` reads tables from stdout."""
    print(f"  {activity} …", file=sys.stderr, flush=True)
