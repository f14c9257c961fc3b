"""Page of judged captions in the report's style: one HTML file that contains its photos and needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from pipeline.errors import one_line
from pipeline.features.animated_thumbnail import data_uri
from pipeline.report.gallery import changed_words, open_thumbnail
from saywhich.judging.caption_comparison import CaptionComparison, PairComparison, ScoreDifference
from saywhich.judging.caption_scores import HARD, ScoreKey
from saywhich.judging.comparison_tables import gap_lines, show_difference, show_verdict, state_verdict
from saywhich.judging.judgement import JudgedRow, Judgement
from saywhich.judging.score_tables import MISSING, score_groups, show_interval, show_number
from saywhich.offline_page import PAGES, REPORT, write_offline_page

EXAMPLES = 6  # images of each kind
LARGE, SMALL, QUALITY = 320, 96, 80  # pixels of a photo's longer side, and JPEG's quality
UNIT = 3  # units of a chart per percent


@dataclass(frozen=True)
class RecallBar:
    """A bar of a chart: a row of captions and its recall with interval, in %."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ShownPhoto:
    """A small photo of a gallery, and whether it is the right one."""

    source: str
    name: str
    right: bool = False


@dataclass(frozen=True)
class PageCaption:
    """A caption on the page: its author's name, its words, each with whether it is new, and its ranks in one line."""

    who: str
    words: Sequence[tuple[str, bool]]
    ranks: str = ""


@dataclass(frozen=True)
class CaptionExample:
    """A photo with its captions and references, its hard gallery, and the photos that its first caption retrieves."""

    source: str
    name: str
    captions: Sequence[PageCaption]
    people: Sequence[str]
    gallery: Sequence[ShownPhoto] = ()
    found: Sequence[ShownPhoto] = ()


def write_judged_page(path: Path, found: Judgement, comparison: CaptionComparison | None = None) -> None:
    """Write the page of a comparison, or without one of a judgement of one caption file, to `path`.

    Raises UserError for a photo that can no longer be read.
    """
    _photo.cache_clear()  # a file may have changed since an earlier page
    score = _main_score(found)
    write_offline_page(
        path,
        "judged.html",
        styles=[REPORT, PAGES / "judged.css"],
        found=found,
        names=[one_line(row.name) for row in found.rows],
        headline=[*_headlines(found, comparison, score)],
        charts=[(judge, _bars(found, ScoreKey(judge, score))) for judge in found.judges],
        score=score,
        unit=UNIT,
        groups=[*_score_rows(found)],
        rows=[one_line(row.name) for row in (*found.rows, *found.baselines)],
        pairs=[(pair, [*_difference_rows(found, pair)]) for pair in (comparison.pairs if comparison else ())],
        examples=_example_sections(found, comparison),
        gap=gap_lines,
        verdict=show_verdict,
        difference=show_difference,
        number=show_number,
        within=show_interval,
    )


def _main_score(found: Judgement) -> str:
    """Return the recall that the headline and the charts show."""
    return HARD if any(key.name == HARD for key in found.keys) else "R@1"


def _headlines(found: Judgement, comparison: CaptionComparison | None, score: str) -> Iterator[str]:
    """Yield a sentence with the main number and its interval, by the first judge, for each pair or for the one file."""
    judge = found.judges[0]
    among = "among look-alikes" if score == HARD else f"among {len(found.files):,}"
    for pair in comparison.pairs if comparison else ():
        each = pair.difference(judge, score)
        yield one_line(
            f"{pair.second.name} against {pair.first.name}: {show_difference(each)} points of {score} "
            f"{show_interval(each.interval, score, signed=True)} by {judge}; {state_verdict(each)}."
        )
    if comparison is None:
        (row,) = found.rows
        key = ScoreKey(judge, score)
        baselines = "; ".join(
            f"{one_line(other.name)} {show_number(other.scores[key].value, score)} %" for other in found.baselines
        )
        yield one_line(
            f"By the captions of {row.name}, {judge} ranks {show_number(row.scores[key].value, score)} % "
            f"{show_interval(row.interval(key), score)} of the images first {among} ({baselines})."
        )


def _bars(found: Judgement, key: ScoreKey) -> list[RecallBar]:
    bars = []
    for row in (*found.rows, *found.baselines):
        if (interval := row.interval(key)) is not None:
            bars.append(RecallBar(one_line(row.name), row.scores[key].value, *interval))
    return bars


def _score_rows(found: Judgement) -> Iterator[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]:
    """Yield groups of scores: a title, and each score's name with value and interval of every row of captions."""
    for title, keys in score_groups(found):
        lines = []
        for key in keys:
            cells = []
            for row in (*found.rows, *found.baselines):
                known = key in row.scores
                number = show_number(row.scores[key].value, key.name) if known else MISSING
                cells.append((number, show_interval(row.interval(key), key.name) if known else ""))
            lines.append((key.name, cells))
        yield title, lines


def _difference_rows(found: Judgement, pair: PairComparison) -> Iterator[tuple[str, list[ScoreDifference]]]:
    for title, keys in score_groups(found):
        yield title, [each for each in pair.differences if each.key in keys]


def _example_sections(
    found: Judgement, comparison: CaptionComparison | None
) -> list[tuple[str, str, list[CaptionExample]]]:
    """Return sections of examples, each with a title and a sentence."""
    judge, sections = found.judges[0], []
    for pair in comparison.pairs if comparison else ():
        change = np.log(pair.second.best_ranks(judge)) - np.log(pair.first.best_ranks(judge))
        gained = [row for row in np.argsort(change, kind="stable")[:EXAMPLES] if change[row] < 0]
        lost = [row for row in np.argsort(-change, kind="stable")[:EXAMPLES] if change[row] > 0]
        names = f"{one_line(pair.second.name)} against {one_line(pair.first.name)}"
        for title, rows in ((f"Gained most: {names}", gained), (f"Lost most: {names}", lost)):
            words = f"By {judge}'s ranks among all; marked words differ from the first caption of the other file."
            sections.append((title, words, [_side_by_side(found, pair, row) for row in rows]))
    if comparison is None:
        (judged,) = found.rows
        ranks = judged.best_ranks(judge)
        sizes = 1 + (found.galleries >= 0).sum(1).numpy()
        hard = judged.best_ranks(judge, hard=True) / sizes
        order = np.lexsort((ranks, -hard))
        hardest = [row for row in order[:EXAMPLES] if sizes[row] > 1]
        worst = list(np.argsort(-ranks, kind="stable")[:EXAMPLES])
        best = list(np.lexsort((hard, ranks))[:EXAMPLES])
        for title, words, rows in (
            ("Hardest galleries", "Images with the worst ranks in their hard galleries.", hardest),
            ("Worst captions", "Images with the worst ranks among all by their captions.", worst),
            ("Best captions", "Images with the best ranks among all by their captions.", best),
        ):
            sections.append(
                (title, f"{words} Ranks by {judge}; 1 is best.", [_example(found, judged, row) for row in rows])
            )
    return [section for section in sections if section[2]]


def _example(found: Judgement, judged: JudgedRow, row: int) -> CaptionExample:
    judge = found.judges[0]
    captions = [
        PageCaption("", [(word, False) for word in text.split()], _ranks(judged, place))
        for place, text in _captions_of(judged, row)
    ]
    others = [other for other in found.galleries[row].tolist() if other >= 0]
    place = next(place for place, _ in _captions_of(judged, row))
    retrieved = judged.ranks[judge].retrieved[place].tolist()
    return CaptionExample(
        _photo(found.files[row], LARGE),
        one_line(found.files[row].name),
        captions,
        list(judged.references[row]),
        [_make_shown_photo(found, other, row) for other in sorted([row, *others])],
        [_make_shown_photo(found, other, row) for other in retrieved],
    )


def _side_by_side(found: Judgement, pair: PairComparison, row: int) -> CaptionExample:
    captions = []
    texts = [_captions_of(each, row) for each in (pair.first, pair.second)]
    for each, own, other in zip((pair.first, pair.second), texts, reversed(texts), strict=True):
        for place, text in own:
            captions.append(PageCaption(one_line(each.name), changed_words(text, other[0][1]), _ranks(each, place)))
    path = found.files[row]
    return CaptionExample(_photo(path, LARGE), one_line(path.name), captions, list(pair.first.references[row]))


def _captions_of(judged: JudgedRow, row: int) -> list[tuple[int, str]]:
    """Return the captions of an image, each with its place among all captions of the row."""
    first = sum(map(len, judged.captions[:row]))
    return list(enumerate(judged.captions[row], first))


def _ranks(judged: JudgedRow, place: int) -> str:
    parts = []
    for judge, ranks in judged.ranks.items():
        hard = int(ranks.among_hard[place])
        parts.append(f"{judge}: rank {int(ranks.among_all[place]):,}" + (f", {hard} among look-alikes" if hard else ""))
    return one_line("; ".join(parts))


def _make_shown_photo(found: Judgement, row: int, right: int) -> ShownPhoto:
    path = found.files[row]
    return ShownPhoto(_photo(path, SMALL), one_line(path.name), row == right)


@lru_cache(1024)
def _photo(path: Path, longest: int) -> str:
    return data_uri(open_thumbnail(path, longest), QUALITY)
