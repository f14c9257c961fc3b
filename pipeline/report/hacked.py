"""Examples of a hacked reward: captions ranked better by the retriever that rewards them than by another judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log

from pipeline.analysis.caption_files import read_captions
from pipeline.analysis.results import Results
from pipeline.analysis.selection import Choice
from pipeline.report.gallery import GalleryPicture, picture_with_methods

SHOWN = 6

Hacked = tuple[int, str]  # the row of an image, and the method of its caption


def hacked_captions(
    results: Results, choices: Sequence[Choice], methods: Iterable[str], retriever: str, control: str
) -> list[Hacked]:
    """Select captions that improve an image's rank by `retriever` and worsen it by the last judge.

    The control's caption is the reference. Both changes are ratios of ranks, and the smaller one counts. Each image has
    one caption, by one of `methods` at its chosen setting and first seed. Returns at most SHOWN, largest first.
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

    best_of: dict[int, tuple[float, str]] = {}
    for n, run in enumerate(compared, 1):
        for image in read[n]:
            how = _hacked(ranks(0, image), ranks(n, image))
            if how > best_of.get(image, (0.0, ""))[0]:
                best_of[image] = how, run.method
    best = sorted(best_of, key=lambda image: (-best_of[image][0], image))[:SHOWN]
    return [(image, best_of[image][1]) for image in best]


def hacked_pictures(
    examples: Sequence[Hacked], control: str, pictures: Callable[[list[int]], list[GalleryPicture]]
) -> list[GalleryPicture]:
    """Return the pictures of `examples`, each with only the control's chosen caption and the selected one."""
    by_row = {picture.row: picture for picture in pictures([row for row, _ in examples])} if examples else {}

    return [picture_with_methods(by_row[row], (control, method)) for row, method in examples]


def _hacked(before: tuple[int | None, int | None], after: tuple[int | None, int | None]) -> float:
    """Return the smaller of two log ratios: the first rank's rise and the second rank's fall; 1 is the best rank."""
    (rewarded, judged), (rewarded_now, judged_now) = before, after
    if rewarded is None or judged is None or rewarded_now is None or judged_now is None:
        return 0.0
    return min(log(rewarded / rewarded_now), log(judged_now / judged))
