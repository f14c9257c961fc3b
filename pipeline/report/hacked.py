"""Captions that the retriever which rewards them finds better than another judge does: examples of a hacked reward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log

from pipeline.analysis.captions import read_captions
from pipeline.analysis.results import Results
from pipeline.analysis.selection import Choice
from pipeline.report.gallery import Picture, only

SHOWN = 6

Hacked = tuple[int, str]  # the row of an image, and the method whose caption of it that is


def hacked(
    results: Results, choices: Sequence[Choice], methods: Iterable[str], retriever: str, control: str
) -> list[Hacked]:
    """The captions by which, beside the control's, an image's rank rose most by `retriever` and fell by the last judge.

    Both count by their ratio, and the smaller of the two decides; of an image one caption, of `methods` at their chosen
    settings, first seeds. The most first, SHOWN of them at most.
    """
    judge = results.ends[-1]
    first = {choice.method: choice.point.runs[0] for choice in choices if choice.point}
    compared = [first[method] for method in methods if method in first]
    if control not in first or retriever not in results.judges or judge == retriever:
        return []
    runs = [first[control], *compared]
    columns = [{who: run.column("rank", who) for who in (retriever, judge)} for run in runs]
    read = read_captions(runs, None, sorted({name for named in columns for name in named.values()}))

    def ranks(n: int, image: int) -> tuple[int | None, int | None]:
        row = read[n].get(image) or {}
        return row.get(columns[n][retriever]), row.get(columns[n][judge])

    found: dict[int, tuple[float, str]] = {}
    for n, run in enumerate(compared, 1):
        for image in read[n]:
            how = _hacked(ranks(0, image), ranks(n, image))
            if how > found.get(image, (0.0, ""))[0]:
                found[image] = how, run.method
    best = sorted(found, key=lambda image: (-found[image][0], image))[:SHOWN]
    return [(image, found[image][1]) for image in best]


def beside(found: Sequence[Hacked], control: str, pictures: Callable[[list[int]], list[Picture]]) -> list[Picture]:
    """Their pictures, each with the control's chosen caption and this one alone."""
    by_row = {picture.row: picture for picture in pictures([row for row, _ in found])} if found else {}

    return [only(by_row[row], (control, method)) for row, method in found]


def _hacked(before: tuple[int | None, int | None], after: tuple[int | None, int | None]) -> float:
    """How much the first rank rose or the second fell, whichever is less; 1 is the best rank."""
    (rewarded, judged), (rewarded_now, judged_now) = before, after
    if rewarded is None or judged is None or rewarded_now is None or judged_now is None:
        return 0.0
    return min(log(rewarded / rewarded_now), log(judged_now / judged))
