"""Image gallery of the test split: each method's captions along λ, and the images that its listener retrieves by them.

A view is a set of settings shown side by side: chosen, at equal CIDEr, at equal recall. One image is shown along λ.
"""

from __future__ import annotations

import base64
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, ImageOps

from pipeline.analysis.caption_files import read_captions, read_rows
from pipeline.analysis.comparison import Comparison
from pipeline.analysis.judge_titles import ADAPTED
from pipeline.analysis.results import SYMBOLS, Point, Results, named_setting
from pipeline.analysis.selection import Choice, ReportSettings
from pipeline.analysis.tradeoff import curves
from pipeline.errors import UserError, reason
from pipeline.features.animated_thumbnail import animated_thumbnail, first_frame
from pipeline.report.figures import styles
from pipeline.report.plot_elements import LineStyle
from pipeline.runtime.film_decoding import is_moving
from pipeline.runtime.untrusted import path_inside

EXAMPLE = "psst_multinomial"  # the method whose captions are shown along λ, if it was run
LONGEST_SIDE = 320  # pixels of a picture on the page
DRAWN = 256  # pixels of a scene that is drawn again
THUMBNAIL = 88  # pixels of a thumbnail to select, and of a retrieved image
BUDGET = 2_000_000  # characters of all thumbnails, to limit the page's size


class SceneRecord(Protocol):
    """The known facts of an image that was drawn."""

    def draw(self, seed: int, pixels: int) -> Image.Image:
        """Draw the scene, `pixels` wide, with the seed of its data set."""

    def judge_words(self, caption: str) -> Sequence[bool | None]:
        """Return for each word of `caption` whether its claims are true; None: no claim."""


ReadScenes = Callable[[Path], Mapping[str, SceneRecord]]  # from a prepared data set to its scenes by image id


def no_scenes(prepared: Path) -> Mapping[str, SceneRecord]:
    """Return the scenes of photos: none."""
    return {}


@dataclass(frozen=True)
class ShownCaption:
    """A caption of an image by one setting, and the image's rank by each judge (1 is best)."""

    method: str
    line: str  # the label and key of its style in figures
    style: LineStyle
    setting: str
    means: str  # the setting's mean CIDEr, and its score by the first judge
    caption: str | None
    ranks: Mapping[str, int | None]
    retrieved: Mapping[str, tuple[int, ...]]  # rows of the images that the first and the last judge rank highest
    views: tuple[str, ...]  # names of the views that show it
    truths: tuple[bool | None, ...] = ()  # drawn scenes: whether each word's claim is true; None for a word without one


@dataclass(frozen=True)
class GalleryPicture:
    """An image of the gallery; `row` is its index in the data set."""

    row: int
    id: str
    image: Image.Image
    human: tuple[str, ...]
    captions: tuple[ShownCaption, ...]
    annotator: str = "person"  # the author of the human captions
    moving: str = ""  # data URI of a film's animated copy; `image` is its first frame

    @property
    def text(self) -> str:
        """Return the first human caption, or ""."""
        return self.human[0] if self.human else ""

    @cached_property
    def data_uri(self) -> str:
        return data_uri(self.image, 85)


@dataclass(frozen=True)
class GalleryView:
    """A set of settings shown together; `points` holds the id() of each."""

    name: str
    label: str
    words: str
    points: frozenset[int]


def gallery_views(results: Results, choices: Sequence[Choice], comparison: Comparison) -> list[GalleryView]:
    """Return the views: chosen settings, all settings, and per level of the comparison each curve's nearest setting.

    The views of levels are the paper's Figure 6: captions of equal CIDEr that differ in recall, and the reverse.
    """

    def view(name: str, label: str, words: str, points: Iterable[Point | None]) -> GalleryView:
        return GalleryView(name, label, words, frozenset(id(point) for point in points if point))

    every = view("all", "every λ", "Each method's captions along λ, the smallest first.", results.points)
    words = "One setting per method: the one chosen on validation."
    views = [view("chosen", "chosen on validation", words, [choice.point for choice in choices]), every]
    for n, slice_ in enumerate((*comparison.at_cider, *comparison.at_score)):
        natural = n < len(comparison.at_cider)
        what = f"{slice_.fixed} " + (f"{slice_.level:.3f}" if natural else f"{round(slice_.level, 1):g}%")
        by = "" if natural else f" ({results.first.title.lower()})"
        words = f"Of each method the measured setting nearest to a test {what}{by}; its numbers are below its name."
        far = [reading.curve.label for reading in slice_.readings if reading.nearest is None]
        words += f" Not reached by: {', '.join(far)}." if far else ""
        views.append(view(f"equal-{n}", f"at {what}", words, [reading.nearest for reading in slice_.readings]))
    return views


def sample_images(prepared: Path, settings: ReportSettings) -> list[int]:
    """Return `settings.images` images drawn at random from the test split, in the order of the data set."""
    rows = read_rows(prepared / "images.parquet", ["image"], [("split", "==", "test")]).to_pylist()
    draw = np.random.Generator(np.random.Philox(key=[settings.seed, 0]))
    drawn = sorted(draw.choice(len(rows), size=min(settings.images, len(rows)), replace=False))
    return [rows[n]["image"] for n in drawn]


def pictures_of(
    wanted: Sequence[int],
    results: Results,
    views: Sequence[GalleryView],
    prepared: Path,
    images_root: Path,
    drawn_with: int | None = None,
    read_scenes: ReadScenes = no_scenes,
    annotator: str = "person",
) -> list[GalleryPicture]:
    """Return the images `wanted`, in the order of the data set, with their captions.

    A setting with several seeds shows the captions of the first. If `drawn_with`, the seed of drawn scenes, is known,
    scenes are drawn again from their facts, DRAWN pixels wide. Raises UserError if a file is missing.
    """
    if not wanted:
        return []
    rows = read_rows(prepared / "images.parquet", ["image", "id", "file"], [("image", "in", list(wanted))]).to_pylist()
    wanted = [row["image"] for row in rows]
    scenes = read_scenes(prepared)
    human, captions = _human(prepared, wanted), _captions(results, views, wanted)
    for row in rows if scenes else ():
        captions[row["image"]] = [_with_truths(words, scenes[row["id"]]) for words in captions[row["image"]]]
    if drawn_with is not None and scenes:
        images = [scenes[row["id"]].draw(drawn_with, DRAWN) for row in rows]
        moving = [""] * len(rows)
    else:
        images = [open_thumbnail(path_inside(images_root, row["file"]), LONGEST_SIDE) for row in rows]
        moving = [animated_thumbnail(path_inside(images_root, row["file"]), LONGEST_SIDE) for row in rows]
    return [
        GalleryPicture(n, row["id"], image, tuple(human[n]), tuple(captions[n]), annotator, copy)
        for n, row, image, copy in zip(wanted, rows, images, moving, strict=True)
    ]


def picture_with_methods(picture: GalleryPicture, methods: Sequence[str]) -> GalleryPicture:
    """Return the picture with only the chosen captions of `methods`, in their order."""
    chosen = [shown for shown in picture.captions if "chosen" in shown.views and shown.method in methods]
    return replace(picture, captions=tuple(sorted(chosen, key=lambda shown: methods.index(shown.method))))


def example_line(results: Results, choices: Sequence[Choice]) -> str | None:
    """Return the curve whose captions are shown along λ: of EXAMPLE, or else of the method with the most settings.

    Among several curves of a method, the one with its chosen setting is taken. Returns None where no curve has two
    settings.
    """
    several = [curve for curve in curves(results) if len(curve.points) > 1]
    wanted = [curve for curve in several if curve.method == EXAMPLE] or several
    chosen = {id(choice.point) for choice in choices if choice.point}
    ranked = [(any(id(point) in chosen for point in curve.points), len(curve.points)) for curve in wanted]
    return wanted[ranked.index(max(ranked))].label if wanted else None


def example_along(
    pictures: Sequence[GalleryPicture], line: str | None
) -> tuple[GalleryPicture, list[ShownCaption]] | None:
    """Return the picture with the most distinct captions by `line` along λ, and those captions.

    The highest λ comes first, as in the paper's Figure 5. The first of tied pictures is taken.
    """
    along = [(picture, [shown for shown in picture.captions if shown.line == line][::-1]) for picture in pictures]
    along = [(picture, rows) for picture, rows in along if rows]
    return max(along, key=lambda pair: len({shown.caption for shown in pair[1]}), default=None)


def thumbnails(pictures: Sequence[GalleryPicture], prepared: Path, images_root: Path) -> dict[int, dict[str, str]]:
    """Return thumbnails of the pictures and of the retrieved images by row, those of chosen settings first.

    Each has `src`, an image to embed once, and `text`, a human caption. Thumbnails beyond BUDGET characters in all are
    omitted. Raises UserError if a file is missing.
    """
    captions = [shown for picture in pictures for shown in picture.captions]
    often = Counter(row for shown in captions for rows in shown.retrieved.values() for row in rows)
    chosen = {row for shown in captions if "chosen" in shown.views for rows in shown.retrieved.values() for row in rows}
    order = sorted(often, key=lambda row: (row not in chosen, -often[row], row))
    wanted = list(dict.fromkeys([*(picture.row for picture in pictures), *order]))
    if not wanted:
        return {}
    rows = read_rows(prepared / "images.parquet", ["image", "file"], [("image", "in", wanted)]).to_pylist()
    files, human = {row["image"]: row["file"] for row in rows}, _human(prepared, wanted)
    by_row, left = {}, BUDGET
    for row in (row for row in wanted if row in files):
        src = data_uri(open_thumbnail(path_inside(images_root, files[row]), THUMBNAIL), 70)
        left -= len(src)
        if left < 0:
            break
        by_row[row] = {"src": src, "text": next(iter(human[row]), "")}
    return by_row


def changed_words(caption: str, other: str) -> list[tuple[str, bool]]:
    """Return the words of `caption`, each with whether it is absent from the caption `other`."""
    mine, theirs = caption.split(), other.split()
    kept = {
        n + k
        for n, _, size in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
        for k in range(size)
    }
    return [(word, n not in kept) for n, word in enumerate(mine)]


def mark_words(shown: ShownCaption, other: str) -> list[tuple[str, bool, bool | None]]:
    """Return the words of a caption, each with whether it is absent from `other`, and whether it is true.

    With `other` empty no word counts as absent.
    """
    words = changed_words(shown.caption or "", other or shown.caption or "")
    return [(word, new, truth) for (word, new), truth in zip_longest(words, shown.truths)]


def _with_truths(shown: ShownCaption, scene: SceneRecord) -> ShownCaption:
    return replace(shown, truths=tuple(scene.judge_words(shown.caption or "")))


def _captions(results: Results, views: Sequence[GalleryView], images: Sequence[int]) -> dict[int, list[ShownCaption]]:
    """Return the captions of each image by the first seed of every setting."""
    points = [(curve.label, point) for curve in curves(results) for point in curve.points]
    runs, first, style = [point.runs[0] for _, point in points], results.first.name, styles(results)
    columns = {run.column("rank", judge) for run in runs for judge in results.judges}
    columns |= {run.column("retrieved", judge) for run in runs for judge in results.ends}
    captions: dict[int, list[ShownCaption]] = {image: [] for image in images}
    for (line, point), run, rows in zip(points, runs, read_captions(runs, images, ["caption", *columns]), strict=True):
        cider, score = point.mean("test", "language", "CIDEr"), point.mean("test", *results.by(first))
        means = [f"CIDEr {cider:.3f}"] if cider is not None else []
        means += [f"{results.score} {score:.1f}"] if score is not None else []
        for image in images:
            row = rows.get(image) or {}
            ranks = {judge: row.get(run.column("rank", judge)) for judge in results.judges}
            if run.frozen:
                ranks[ADAPTED] = None  # equal to the own listener
            captions[image].append(
                ShownCaption(
                    method=run.method,
                    line=line,
                    style=style[line],
                    setting=", ".join(named_setting(run, key) for key in SYMBOLS if key in run.settings),
                    means=", ".join(means),
                    caption=row.get("caption"),
                    ranks=ranks,
                    retrieved={j: tuple(row.get(run.column("retrieved", j)) or ()) for j in results.ends},
                    views=tuple(view.name for view in views if id(point) in view.points),
                )
            )
    return captions


def _human(prepared: Path, images: Iterable[int]) -> dict[int, list[str]]:
    texts: dict[int, list[str]] = defaultdict(list)
    rows = read_rows(prepared / "captions.parquet", ["image", "text"], [("image", "in", list(images))])
    for row in rows.to_pylist():
        texts[row["image"]].append(row["text"])
    return texts


def open_thumbnail(path: Path, longest: int) -> Image.Image:
    """Return an image file as RGB, its longer side at most `longest` pixels; of a film the first frame.

    Raises UserError where the file cannot be read.
    """
    try:
        if is_moving(path):
            picture = first_frame(path)
            picture.thumbnail((longest, longest))
            return picture
        with Image.open(path) as image:
            image.draft("RGB", (longest, longest))  # decode a JPEG no larger than needed
            picture = ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # decoders raise nearly anything for damaged files
        raise UserError(
            f"{path}: the image cannot be read ({reason(error)}); put it back or prepare the data again."
        ) from None
    picture.thumbnail((longest, longest))
    return picture


def data_uri(image: Image.Image, quality: int) -> str:
    out = io.BytesIO()
    image.save(out, format="JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")
