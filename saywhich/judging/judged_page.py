"""Page of judged captions in the report's style: one HTML file that contains its photos and needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from pipeline.errors import escape_line
from pipeline.features.animated_thumbnail import encode_data_uri
from pipeline.report.gallery import find_changed_words, open_thumbnail
from saywhich.judging.caption_comparison import CaptionComparison, PairComparison, ScoreDifference
from saywhich.judging.caption_scores import HARD_RECALL, ScoreKey
from saywhich.judging.comparison_tables import format_gap_lines, show_difference, show_verdict, state_verdict
from saywhich.judging.judgement import JudgedRow, Judgement
from saywhich.judging.score_tables import MISSING, group_scores, show_interval, show_number
from saywhich.offline_page import PAGES, REPORT_STYLE, write_offline_page

EXAMPLES = 6  # images of each kind
LARGE, SMALL, QUALITY = 320, 96, 80  # pixels of a photo's longer side, and JPEG's quality
UNITS_PER_POINT = 3  # units of a chart per percentage point


@dataclass(frozen=True)
class RecallBar:
    """A bar of a chart: a row of captions and its recall with interval, in %."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class GalleryPhoto:
    """A small photo of a gallery; `is_target` is True for the target, the photo of the example."""

    source: str
    name: str
    is_target: bool = False


@dataclass(frozen=True)
class PageCaption:
    """A caption on the page: its file's name, its words with True for changed words, and its ranks in one line."""

    file: str
    words: Sequence[tuple[str, bool]]
    ranks: str = ""


@dataclass(frozen=True)
class CaptionExample:
    """A photo with its captions and references, its hard gallery, and the photos that its first caption retrieves."""

    source: str
    name: str
    captions: Sequence[PageCaption]
    references: Sequence[str]
    gallery: Sequence[GalleryPhoto] = ()
    retrieved: Sequence[GalleryPhoto] = ()


def write_judged_page(path: Path, judgement: Judgement, comparison: CaptionComparison | None = None) -> None:
    """Write the page of a judgement to `path`; a judgement of two or more caption files needs its `comparison`.

    Raises UserError for a photo that can no longer be read.
    """
    _encode_photo.cache_clear()  # a file may have changed since an earlier page
    score = _choose_main_score(judgement)
    write_offline_page(
        path,
        "judged.html",
        styles=[REPORT_STYLE, PAGES / "judged.css"],
        judgement=judgement,
        names=[escape_line(row.name) for row in judgement.rows],
        headline=[*_format_headlines(judgement, comparison, score)],
        charts=[(judge, _make_bars(judgement, ScoreKey(judge, score))) for judge in judgement.judges],
        score=score,
        unit=UNITS_PER_POINT,
        groups=[*_format_scores(judgement)],
        rows=[escape_line(row.name) for row in (*judgement.rows, *judgement.baselines)],
        pairs=[(pair, [*_group_differences(judgement, pair)]) for pair in (comparison.pairs if comparison else ())],
        examples=_make_example_sections(judgement, comparison),
        gap=format_gap_lines,
        verdict=show_verdict,
        difference=show_difference,
        number=show_number,
        interval=show_interval,
    )


def _choose_main_score(judgement: Judgement) -> str:
    """Return the recall that the headline and the charts show."""
    return HARD_RECALL if any(key.name == HARD_RECALL for key in judgement.keys) else "R@1"


def _format_headlines(judgement: Judgement, comparison: CaptionComparison | None, score: str) -> Iterator[str]:
    """Yield a sentence with the main number and its interval, by the first judge, for each pair or the only file."""
    judge = judgement.judges[0]
    gallery = "in its hard gallery" if score == HARD_RECALL else f"among {len(judgement.files):,} images"
    for pair in comparison.pairs if comparison else ():
        difference = pair.difference(judge, score)
        yield escape_line(
            f"{pair.second.name} against {pair.first.name}: {show_difference(difference)} points of {score} "
            f"{show_interval(difference.interval, score, signed=True)} by {judge}; {state_verdict(difference)}."
        )
    if comparison is None:
        (row,) = judgement.rows
        key = ScoreKey(judge, score)
        baselines = "; ".join(
            f"{escape_line(other.name)} {show_number(other.scores[key].value, score)} %"
            for other in judgement.baselines
        )
        yield escape_line(
            f"{judge} ranks the right image first {gallery} for {show_number(row.scores[key].value, score)} % "
            f"{show_interval(row.compute_interval(key), score)} of the captions of {row.name} ({baselines})."
        )


def _make_bars(judgement: Judgement, key: ScoreKey) -> list[RecallBar]:
    bars = []
    for row in (*judgement.rows, *judgement.baselines):
        if (interval := row.compute_interval(key)) is not None:
            bars.append(RecallBar(escape_line(row.name), row.scores[key].value, *interval))
    return bars


def _format_scores(judgement: Judgement) -> Iterator[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]:
    """Yield groups of scores: a title, and each score's name with value and interval of every row of captions."""
    for title, keys in group_scores(judgement):
        lines = []
        for key in keys:
            cells = []
            for row in (*judgement.rows, *judgement.baselines):
                has_score = key in row.scores
                number = show_number(row.scores[key].value, key.name) if has_score else MISSING
                cells.append((number, show_interval(row.compute_interval(key), key.name) if has_score else ""))
            lines.append((key.name, cells))
        yield title, lines


def _group_differences(judgement: Judgement, pair: PairComparison) -> Iterator[tuple[str, list[ScoreDifference]]]:
    for title, keys in group_scores(judgement):
        yield title, [difference for difference in pair.differences if difference.key in keys]


def _make_example_sections(
    judgement: Judgement, comparison: CaptionComparison | None
) -> list[tuple[str, str, list[CaptionExample]]]:
    """Return sections of examples, each with a title and a sentence."""
    judge, sections = judgement.judges[0], []
    for pair in comparison.pairs if comparison else ():
        change = np.log(pair.second.best_ranks(judge)) - np.log(pair.first.best_ranks(judge))
        gained = [image for image in np.argsort(change, kind="stable")[:EXAMPLES] if change[image] < 0]
        lost = [image for image in np.argsort(-change, kind="stable")[:EXAMPLES] if change[image] > 0]
        names = f"{escape_line(pair.second.name)} against {escape_line(pair.first.name)}"
        for title, images in ((f"Gained most: {names}", gained), (f"Lost most: {names}", lost)):
            text = (
                f"Ranks are by {judge} among all images; marked words differ from the first caption of the other file."
            )
            sections.append((title, text, [_make_pair_example(judgement, pair, image) for image in images]))
    if comparison is None:
        (row,) = judgement.rows
        ranks = row.best_ranks(judge)
        sizes = 1 + (judgement.galleries >= 0).sum(1).numpy()
        hard = row.best_ranks(judge, hard=True) / sizes
        order = np.lexsort((ranks, -hard))
        hardest = [image for image in order[:EXAMPLES] if sizes[image] > 1]
        worst = list(np.argsort(-ranks, kind="stable")[:EXAMPLES])
        best = list(np.lexsort((hard, ranks))[:EXAMPLES])
        for title, text, images in (
            ("Hardest galleries", "Images with the worst relative ranks in their hard galleries.", hardest),
            ("Worst captions", "Images with the worst ranks among all images by their captions.", worst),
            ("Best captions", "Images with the best ranks among all images by their captions.", best),
        ):
            examples = [_make_example(judgement, row, image) for image in images]
            sections.append((title, f"{text} Ranks by {judge}; 1 is best.", examples))
    return [section for section in sections if section[2]]


def _make_example(judgement: Judgement, row: JudgedRow, image: int) -> CaptionExample:
    judge = judgement.judges[0]
    numbered_captions = _number_captions(row, image)
    captions = [
        PageCaption("", [(word, False) for word in text.split()], _format_ranks(row, index))
        for index, text in numbered_captions
    ]
    others = [other for other in judgement.galleries[image].tolist() if other >= 0]
    retrieved = row.ranks[judge].retrieved[numbered_captions[0][0]].tolist()
    return CaptionExample(
        _encode_photo(judgement.files[image], LARGE),
        escape_line(judgement.files[image].name),
        captions,
        list(row.references[image]),
        [_make_gallery_photo(judgement, other, image) for other in sorted([image, *others])],
        [_make_gallery_photo(judgement, other, image) for other in retrieved],
    )


def _make_pair_example(judgement: Judgement, pair: PairComparison, image: int) -> CaptionExample:
    captions = []
    rows = (pair.first, pair.second)
    texts = [_number_captions(row, image) for row in rows]
    for row, numbered_captions, other in zip(rows, texts, reversed(texts), strict=True):
        for index, text in numbered_captions:
            words = find_changed_words(text, other[0][1])
            captions.append(PageCaption(escape_line(row.name), words, _format_ranks(row, index)))
    path = judgement.files[image]
    return CaptionExample(
        _encode_photo(path, LARGE), escape_line(path.name), captions, list(pair.first.references[image])
    )


def _number_captions(row: JudgedRow, image: int) -> list[tuple[int, str]]:
    """Return the captions of an image, each with its index among all captions of the row."""
    first = sum(map(len, row.captions[:image]))
    return list(enumerate(row.captions[image], first))


def _format_ranks(row: JudgedRow, index: int) -> str:
    parts = []
    for judge, ranks in row.ranks.items():
        hard = int(ranks.among_hard[index])
        parts.append(
            f"{judge}: rank {int(ranks.among_all[index]):,}" + (f", {hard} in the hard gallery" if hard else "")
        )
    return escape_line("; ".join(parts))


def _make_gallery_photo(judgement: Judgement, image: int, target: int) -> GalleryPhoto:
    path = judgement.files[image]
    return GalleryPhoto(_encode_photo(path, SMALL), escape_line(path.name), image == target)


@lru_cache(1024)
def _encode_photo(path: Path, longest: int) -> str:
    return encode_data_uri(open_thumbnail(path, longest), QUALITY)
