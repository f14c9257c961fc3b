"""Images of the test split with each method's captions along λ and the images that its listener retrieves by them.

Views are the settings shown side by side: chosen, at equal CIDEr, at equal recall. One image is shown along λ.
"""

from __future__ import annotations

import base64
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.analysis.captions import read_captions, read_rows
from pipeline.analysis.compare import Comparison
from pipeline.analysis.judges import ADAPTED
from pipeline.analysis.results import SYMBOLS, Point, Results, named
from pipeline.analysis.selection import Choice, ReportSettings
from pipeline.analysis.tradeoff import curves
from pipeline.errors import UserError, reason
from pipeline.features.moving import first_frame, moving_copy
from pipeline.report.drawing import Style
from pipeline.report.figures import styles
from pipeline.runtime.films import moves
from pipeline.runtime.untrusted import inside
from pipeline.scenes.drawing.draw import draw_scene
from pipeline.scenes.facts import FACTS, Scene, read_facts
from pipeline.scenes.faithfulness import verdict_of_words

if TYPE_CHECKING:
    from PIL.Image import Image

EXAMPLE = "psst_multinomial"  # whose captions are shown along λ, if it was run
LONGEST_SIDE = 320  # pixels of a picture on the page
DRAWN = 256  # of a scene that is drawn again
THUMBNAIL = 88  # pixels of one to pick from, or of a retrieved one
BUDGET = 2_000_000  # characters of all thumbnails, so that the page stays small


@dataclass(frozen=True)
class ShownCaption:
    """One setting's caption of an image and the image's rank among all, by each judge (1 is best)."""

    method: str
    line: str  # the figures' label and style
    style: Style
    setting: str
    means: str  # the setting's CIDEr and score by the first judge
    caption: str | None
    ranks: Mapping[str, int | None]
    found: Mapping[str, tuple[int, ...]]  # rows of the images that the first and the last judge rank highest
    views: tuple[str, ...]  # names of those that show it
    truths: tuple[
        bool | None, ...
    ] = ()  # of a drawn scene: of each word, whether what it claims is true; None: nothing


@dataclass(frozen=True)
class Picture:
    """An image of the gallery; `row` is its place in the data set."""

    row: int
    id: str
    image: Image
    human: tuple[str, ...]
    said: tuple[ShownCaption, ...]
    moving: str = ""  # the address of a film's copy that moves, of which `image` is the first frame

    @property
    def text(self) -> str:
        """The first human caption."""
        return self.human[0] if self.human else ""

    @cached_property
    def data_uri(self) -> str:
        return data_uri(self.image, 85)


@dataclass(frozen=True)
class GalleryView:
    """Settings that are shown together; `points` holds the id() of each."""

    name: str
    label: str
    words: str
    points: frozenset[int]


def views(results: Results, choices: Sequence[Choice], comparison: Comparison) -> list[GalleryView]:
    """The chosen settings; every one; and at each level of the comparison each curve's measured setting nearest to it.

    The last are the paper's Figure 6: captions of equal CIDEr that differ in recall, and the reverse.
    """

    def view(name: str, label: str, words: str, points: Iterable[Point | None]) -> GalleryView:
        return GalleryView(name, label, words, frozenset(id(point) for point in points if point))

    every = view("all", "every λ", "Each method's captions along λ, the smallest first.", results.points)
    words = "One setting per method: the one chosen on validation."
    found = [view("chosen", "chosen on validation", words, [choice.point for choice in choices]), every]
    for n, slice_ in enumerate((*comparison.at_cider, *comparison.at_score)):
        natural = n < len(comparison.at_cider)
        what = f"{slice_.fixed} " + (f"{slice_.level:.3f}" if natural else f"{round(slice_.level, 1):g}%")
        by = "" if natural else f" ({results.first.title.lower()})"
        words = f"Of each method the measured setting nearest to a test {what}{by}; its numbers are below its name."
        far = [reading.curve.label for reading in slice_.readings if reading.nearest is None]
        words += f" Not reached by: {', '.join(far)}." if far else ""
        found.append(view(f"equal-{n}", f"at {what}", words, [reading.nearest for reading in slice_.readings]))
    return found


def gallery(
    results: Results,
    views: Sequence[GalleryView],
    prepared: Path,
    images_root: Path,
    settings: ReportSettings,
    drawn_with: int | None = None,
) -> list[Picture]:
    """`settings.images` images drawn at random from the test split, in the order of the data set."""
    rows = read_rows(prepared / "images.parquet", ["image"], [("split", "==", "test")]).to_pylist()
    draw = np.random.Generator(np.random.Philox(key=[settings.seed, 0]))
    drawn = sorted(draw.choice(len(rows), size=min(settings.images, len(rows)), replace=False))
    return pictures_of([rows[n]["image"] for n in drawn], results, views, prepared, images_root, drawn_with)


def pictures_of(
    wanted: Sequence[int],
    results: Results,
    views: Sequence[GalleryView],
    prepared: Path,
    images_root: Path,
    drawn_with: int | None = None,
) -> list[Picture]:
    """The images `wanted`, in the order of the data set, with their captions.

    Of a setting with several seeds, the captions are those of the first. Scenes are drawn again from their facts, DRAWN
    pixels wide, if it is known what seed they were drawn with. Raises UserError if a file is missing.
    """
    if not wanted:
        return []
    rows = read_rows(prepared / "images.parquet", ["image", "id", "file"], [("image", "in", list(wanted))]).to_pylist()
    wanted = [row["image"] for row in rows]
    scenes = read_facts(prepared / FACTS) if (prepared / FACTS).exists() else {}  # of photos nothing is known
    human, said = _human(prepared, wanted), _said(results, views, wanted)
    for row in rows if scenes else ():
        said[row["image"]] = [_judged(words, scenes[row["id"]]) for words in said[row["image"]]]
    if drawn_with is not None and scenes:
        images = [draw_scene(scenes[row["id"]], drawn_with, int(row["id"]), DRAWN) for row in rows]
        moving = [""] * len(rows)
    else:
        images = [opened(inside(images_root, row["file"]), LONGEST_SIDE) for row in rows]
        moving = [moving_copy(inside(images_root, row["file"]), LONGEST_SIDE) for row in rows]
    return [
        Picture(n, row["id"], image, tuple(human[n]), tuple(said[n]), copy)
        for n, row, image, copy in zip(wanted, rows, images, moving, strict=True)
    ]


def only(picture: Picture, methods: Sequence[str]) -> Picture:
    """The picture with the chosen captions of these methods alone, in their order."""
    said = [words for words in picture.said if "chosen" in words.views and words.method in methods]
    return replace(picture, said=tuple(sorted(said, key=lambda words: methods.index(words.method))))


def example_line(results: Results, choices: Sequence[Choice]) -> str | None:
    """The line whose captions are shown along λ: of EXAMPLE or else of the method with the most settings.

    Where a method has several lines, the one with its chosen setting. None where no line has two settings.
    """
    several = [curve for curve in curves(results) if len(curve.points) > 1]
    wanted = [curve for curve in several if curve.method == EXAMPLE] or several
    chosen = {id(choice.point) for choice in choices if choice.point}
    ranked = [(any(id(point) in chosen for point in curve.points), len(curve.points)) for curve in wanted]
    return wanted[ranked.index(max(ranked))].label if wanted else None


def example_along(pictures: Sequence[Picture], line: str | None) -> tuple[Picture, list[ShownCaption]] | None:
    """The picture of the gallery with the most distinct captions by `line` along λ, and those captions.

    Highest λ first, as in the paper's Figure 5. Of pictures that tie, the first.
    """
    said = [(picture, [words for words in picture.said if words.line == line][::-1]) for picture in pictures]
    said = [(picture, rows) for picture, rows in said if rows]
    return max(said, key=lambda pair: len({words.caption for words in pair[1]}), default=None)


def thumbnails(pictures: Sequence[Picture], prepared: Path, images_root: Path) -> dict[int, dict[str, str]]:
    """The pictures, and the images retrieved by their captions, by row: those of chosen settings first, then the rest.

    Each has `src`, a small picture to be embedded once however often it is shown, and `text`, a human caption.
    What exceeds BUDGET characters in all is left out. Raises UserError if a file is missing.
    """
    said = [words for picture in pictures for words in picture.said]
    often = Counter(row for words in said for rows in words.found.values() for row in rows)
    chosen = {row for words in said if "chosen" in words.views for rows in words.found.values() for row in rows}
    order = sorted(often, key=lambda row: (row not in chosen, -often[row], row))
    wanted = list(dict.fromkeys([*(picture.row for picture in pictures), *order]))
    if not wanted:
        return {}
    rows = read_rows(prepared / "images.parquet", ["image", "file"], [("image", "in", wanted)]).to_pylist()
    files, human = {row["image"]: row["file"] for row in rows}, _human(prepared, wanted)
    found, left = {}, BUDGET
    for row in (row for row in wanted if row in files):
        src = data_uri(opened(inside(images_root, files[row]), THUMBNAIL), 70)
        left -= len(src)
        if left < 0:
            break
        found[row] = {"src": src, "text": next(iter(human[row]), "")}
    return found


def changed_words(caption: str, other: str) -> list[tuple[str, bool]]:
    """The words of `caption`, each with whether it is new beside the caption `other`."""
    mine, theirs = caption.split(), other.split()
    kept = {
        n + k
        for n, _, size in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
        for k in range(size)
    }
    return [(word, n not in kept) for n, word in enumerate(mine)]


def spoken(said: ShownCaption, other: str) -> list[tuple[str, bool, bool | None]]:
    """The words of a caption, each with whether it is new beside `other` (empty: none is), and whether it is true."""
    words = changed_words(said.caption or "", other or said.caption or "")
    return [(word, new, truth) for (word, new), truth in zip_longest(words, said.truths)]


def _judged(said: ShownCaption, scene: Scene) -> ShownCaption:
    return replace(said, truths=tuple(truth for _, truth in verdict_of_words(said.caption or "", scene)))


def _said(results: Results, views: Sequence[GalleryView], images: Sequence[int]) -> dict[int, list[ShownCaption]]:
    """The captions of each image by the first seed of every setting."""
    points = [(curve.label, point) for curve in curves(results) for point in curve.points]
    runs, first, style = [point.runs[0] for _, point in points], results.first.name, styles(results)
    columns = {run.column("rank", judge) for run in runs for judge in results.judges}
    columns |= {run.column("retrieved", judge) for run in runs for judge in results.ends}
    said: dict[int, list[ShownCaption]] = {image: [] for image in images}
    for (line, point), run, rows in zip(points, runs, read_captions(runs, images, ["caption", *columns]), strict=True):
        cider, score = point.mean("test", "language", "CIDEr"), point.mean("test", *results.by(first))
        means = [f"CIDEr {cider:.3f}"] if cider is not None else []
        means += [f"{results.score} {score:.1f}"] if score is not None else []
        for image in images:
            row = rows.get(image) or {}
            ranks = {judge: row.get(run.column("rank", judge)) for judge in results.judges}
            if run.frozen:
                ranks[ADAPTED] = None  # it is the own one
            said[image].append(
                ShownCaption(
                    method=run.method,
                    line=line,
                    style=style[line],
                    setting=", ".join(named(run, key) for key in SYMBOLS if key in run.settings),
                    means=", ".join(means),
                    caption=row.get("caption"),
                    ranks=ranks,
                    found={j: tuple(row.get(run.column("retrieved", j)) or ()) for j in results.ends},
                    views=tuple(view.name for view in views if id(point) in view.points),
                )
            )
    return said


def _human(prepared: Path, images: Iterable[int]) -> dict[int, list[str]]:
    texts: dict[int, list[str]] = defaultdict(list)
    rows = read_rows(prepared / "captions.parquet", ["image", "text"], [("image", "in", list(images))])
    for row in rows.to_pylist():
        texts[row["image"]].append(row["text"])
    return texts


def opened(path: Path, longest: int) -> Image:
    """An image file as RGB, its longer side `longest` pixels at most; of a film the first frame of its moving copy."""
    from PIL import Image, ImageOps

    try:
        if moves(path):
            picture = first_frame(path)
            picture.thumbnail((longest, longest))
            return picture
        with Image.open(path) as image:
            image.draft("RGB", (longest, longest))  # a JPEG is decoded no larger than needed
            picture = ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # decoders of damaged files raise nearly anything
        raise UserError(
            f"{path}: the image cannot be read ({reason(error)}); put it back or prepare the data again."
        ) from None
    picture.thumbnail((longest, longest))
    return picture


def data_uri(image: Image, quality: int) -> str:
    out = io.BytesIO()
    image.save(out, format="JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")
