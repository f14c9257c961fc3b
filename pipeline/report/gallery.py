"""Image gallery of the test split: each method's captions along λ, and the images that listeners retrieve by them.

A view is a set of settings shown side by side: chosen, all, at equal CIDEr, or at equal recall. The report also shows
one image with one method's captions along λ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from pipeline.analysis.caption_files import read_captions, read_rows
from pipeline.analysis.comparison import Comparison
from pipeline.analysis.results import SYMBOLS, Point, Results, format_named_setting
from pipeline.analysis.selection import Choice, ReportSettings
from pipeline.analysis.tradeoff import build_curves
from pipeline.errors import UserError, summarise_error
from pipeline.evaluation.judge_names import ADAPTED
from pipeline.features.animated_thumbnail import encode_data_uri, make_animated_thumbnail, open_first_frame
from pipeline.features.images import to_upright_rgb
from pipeline.report.figures import choose_styles
from pipeline.report.plot_elements import LineStyle
from pipeline.runtime.film_decoding import is_moving
from pipeline.runtime.untrusted import resolve_inside

EXAMPLE = "psst_multinomial"  # method whose captions are shown along λ, if one of its curves has two settings or more
MAX_SIDE = 320  # pixels of a picture on the page
SCENE_WIDTH = 256  # pixels of a scene that is drawn again
THUMBNAIL = 88  # pixels of a thumbnail
MAX_THUMBNAILS = 2_000_000  # characters of all thumbnails together, to limit the page's size


class SceneRecord(Protocol):
    """Known facts of a drawn image."""

    def draw(self, seed: int, pixels: int) -> Image.Image:
        """Draw the scene, `pixels` wide, with the seed of its data set."""

    def judge_words(self, caption: str) -> Sequence[bool | None]:
        """Return for each word of `caption` whether its claims are true; None for a word without a claim."""


# maps the folder of a prepared data set to its scenes by image id
ReadScenes = Callable[[Path], Mapping[str, SceneRecord]]


def read_no_scenes(prepared: Path) -> Mapping[str, SceneRecord]:
    """Return {}, the scenes of a data set of photos."""
    return {}


@dataclass(frozen=True)
class GalleryCaption:
    """Caption of an image by one setting, and the image's rank by each judge (1 is best)."""

    method: str
    line: str  # label of the setting's line in figures
    style: LineStyle
    setting: str
    means: str  # mean CIDEr of the setting, and its score by the first judge
    caption: str | None
    ranks: Mapping[str, int | None]  # by judge
    retrieved: Mapping[str, tuple[int, ...]]  # rows of the images that the first and the last judge rank highest
    views: tuple[str, ...]  # names of the views that show the caption
    truths: tuple[bool | None, ...] = ()  # drawn scenes: truth of each word's claims; None for a word without a claim


@dataclass(frozen=True)
class GalleryPicture:
    """Image of the gallery with its captions."""

    row: int  # index of the image in the data set
    id: str
    image: Image.Image
    human: tuple[str, ...]
    captions: tuple[GalleryCaption, ...]
    annotator: str = "person"  # author of the human captions
    animation_uri: str = ""  # data URI of a film's animated copy; `image` is the copy's first frame

    @property
    def text(self) -> str:
        """Return the first human caption, or ""."""
        return self.human[0] if self.human else ""

    @cached_property
    def data_uri(self) -> str:
        """Return the image as a data URI."""
        return encode_data_uri(self.image, 85)


@dataclass(frozen=True)
class GalleryView:
    """Set of settings that the gallery shows together."""

    name: str
    label: str
    description: str
    points: frozenset[int]  # id() of each setting's point


def build_gallery_views(results: Results, choices: Sequence[Choice], comparison: Comparison) -> list[GalleryView]:
    """Return the views: chosen settings, all settings, and for each level of the comparison one setting per curve.

    The views of levels correspond to Figure 6 of PSST. There, captions have equal CIDEr and different recall, or equal
    recall and different CIDEr.
    """

    def make_view(name: str, label: str, description: str, points: Iterable[Point | None]) -> GalleryView:
        return GalleryView(name, label, description, frozenset(id(point) for point in points if point))

    chosen = [choice.point for choice in choices]
    views = [
        make_view(
            "chosen", "chosen on validation", "One setting per method: the setting chosen on validation.", chosen
        ),
        make_view("all", "every λ", "Each method's captions along λ, the smallest λ first.", results.points),
    ]
    for n, slice_ in enumerate((*comparison.at_cider, *comparison.at_score)):
        at_cider = n < len(comparison.at_cider)
        level = f"{slice_.fixed} " + (f"{slice_.level:.3f}" if at_cider else f"{round(slice_.level, 1):g}%")
        judge_note = "" if at_cider else f" ({results.first_judge.title.lower()})"
        description = (
            f"Each method's measured setting with the largest weight in its estimate at a test {level}{judge_note}; "
        )
        description += "its numbers are below its name."
        unreached = [reading.curve.label for reading in slice_.readings if reading.nearest is None]
        description += f" Not reached by: {', '.join(unreached)}." if unreached else ""
        views.append(
            make_view(f"equal-{n}", f"at {level}", description, [reading.nearest for reading in slice_.readings])
        )
    return views


def sample_images(prepared: Path, settings: ReportSettings) -> list[int]:
    """Return `settings.images` random images of the test split (all if it has fewer), in the order of the data set.

    Raises UserError as `read_rows` does.
    """
    rows = read_rows(prepared / "images.parquet", ["image"], [("split", "==", "test")]).to_pylist()
    rng = np.random.Generator(np.random.Philox(key=[settings.seed, 0]))
    indices = sorted(rng.choice(len(rows), size=min(settings.images, len(rows)), replace=False))
    return [rows[n]["image"] for n in indices]


def select_pictures(
    indices: Sequence[int],
    results: Results,
    views: Sequence[GalleryView],
    prepared: Path,
    images_root: Path,
    scene_seed: int | None = None,
    read_scenes: ReadScenes = read_no_scenes,
    annotator: str = "person",
) -> list[GalleryPicture]:
    """Return the images at `indices` in the data set, in the order of the data set, with their captions.

    A setting shows the captions of its first seed. With `scene_seed`, the seed of drawn scenes, scenes are drawn again
    from their facts, SCENE_WIDTH pixels wide. Raises UserError if a file is missing or cannot be read.
    """
    if not indices:
        return []
    rows = read_rows(prepared / "images.parquet", ["image", "id", "file"], [("image", "in", list(indices))]).to_pylist()
    indices = [row["image"] for row in rows]
    scenes = read_scenes(prepared)
    human, captions = _read_human_captions(prepared, indices), _collect_captions(results, views, indices)
    for row in rows if scenes else ():
        captions[row["image"]] = [_add_truths(entry, scenes[row["id"]]) for entry in captions[row["image"]]]
    if scene_seed is not None and scenes:
        images = [scenes[row["id"]].draw(scene_seed, SCENE_WIDTH) for row in rows]
        animation_uris = [""] * len(rows)
    else:
        images = [open_thumbnail(resolve_inside(images_root, row["file"]), MAX_SIDE) for row in rows]
        animation_uris = [make_animated_thumbnail(resolve_inside(images_root, row["file"]), MAX_SIDE) for row in rows]
    return [
        GalleryPicture(n, row["id"], image, tuple(human[n]), tuple(captions[n]), annotator, animation_uri)
        for n, row, image, animation_uri in zip(indices, rows, images, animation_uris, strict=True)
    ]


def select_captions_of_methods(picture: GalleryPicture, methods: Sequence[str]) -> GalleryPicture:
    """Return the picture with only the chosen captions of `methods`, in their order."""
    chosen = [entry for entry in picture.captions if "chosen" in entry.views and entry.method in methods]
    return replace(picture, captions=tuple(sorted(chosen, key=lambda entry: methods.index(entry.method))))


def choose_example_line(results: Results, choices: Sequence[Choice]) -> str | None:
    """Return the label of the curve whose captions are shown along λ; None where each curve has one setting.

    Candidates are the curves of the method EXAMPLE with two settings or more. If EXAMPLE has no such curve, candidates
    are such curves of all methods. Curves with a chosen setting come first, then curves with more settings.
    """
    long_curves = [curve for curve in build_curves(results) if len(curve.points) > 1]
    candidates = [curve for curve in long_curves if curve.method == EXAMPLE] or long_curves
    chosen = {id(choice.point) for choice in choices if choice.point}
    ranked = [(any(id(point) in chosen for point in curve.points), len(curve.points)) for curve in candidates]
    return candidates[ranked.index(max(ranked))].label if candidates else None


def choose_lambda_example(
    pictures: Sequence[GalleryPicture], line: str | None
) -> tuple[GalleryPicture, list[GalleryCaption]] | None:
    """Return the picture with the most distinct captions by `line` along λ, and these captions.

    The highest λ comes first, as in Figure 5 of PSST. Among tied pictures the first is returned. Returns None where no
    picture has a caption by `line`.
    """
    pairs = [(picture, [entry for entry in picture.captions if entry.line == line][::-1]) for picture in pictures]
    pairs = [(picture, captions) for picture, captions in pairs if captions]
    return max(pairs, key=lambda pair: len({entry.caption for entry in pair[1]}), default=None)


def make_thumbnails(pictures: Sequence[GalleryPicture], prepared: Path, images_root: Path) -> dict[int, dict[str, str]]:
    """Return thumbnails by row: first of the pictures, then of images retrieved at chosen settings, then of others.

    Each has `src`, a data URI, and `text`, a human caption. Thumbnails beyond MAX_THUMBNAILS characters are omitted.
    Raises UserError if a file is missing or cannot be read.
    """
    captions = [entry for picture in pictures for entry in picture.captions]
    counts = Counter(row for entry in captions for rows in entry.retrieved.values() for row in rows)
    chosen = {row for entry in captions if "chosen" in entry.views for rows in entry.retrieved.values() for row in rows}
    order = sorted(counts, key=lambda row: (row not in chosen, -counts[row], row))
    thumbnail_rows = list(dict.fromkeys([*(picture.row for picture in pictures), *order]))
    if not thumbnail_rows:
        return {}
    rows = read_rows(prepared / "images.parquet", ["image", "file"], [("image", "in", thumbnail_rows)]).to_pylist()
    files, human = {row["image"]: row["file"] for row in rows}, _read_human_captions(prepared, thumbnail_rows)
    by_row, remaining = {}, MAX_THUMBNAILS
    for row in (row for row in thumbnail_rows if row in files):
        src = encode_data_uri(open_thumbnail(resolve_inside(images_root, files[row]), THUMBNAIL), 70)
        remaining -= len(src)
        if remaining < 0:
            break
        by_row[row] = {"src": src, "text": next(iter(human[row]), "")}
    return by_row


def find_changed_words(caption: str, other: str) -> list[tuple[str, bool]]:
    """Return the words of `caption`, each with True if an alignment with the words of `other` leaves it unmatched.

    The alignment keeps the order of words, so a word at another position in `other` may be unmatched.
    """
    words = caption.split()
    blocks = SequenceMatcher(None, words, other.split(), autojunk=False).get_matching_blocks()
    shared = {n for block in blocks for n in range(block.a, block.a + block.size)}
    return [(word, n not in shared) for n, word in enumerate(words)]


def mark_words(entry: GalleryCaption, other: str) -> list[tuple[str, bool, bool | None]]:
    """Return the words of a caption, each with the mark of `find_changed_words` and its truth (None: no claim).

    With an empty `other`, no word is marked.
    """
    words = find_changed_words(entry.caption or "", other or entry.caption or "")
    return [(word, marked, truth) for (word, marked), truth in zip_longest(words, entry.truths)]


def _add_truths(entry: GalleryCaption, scene: SceneRecord) -> GalleryCaption:
    return replace(entry, truths=tuple(scene.judge_words(entry.caption or "")))


def _collect_captions(
    results: Results, views: Sequence[GalleryView], images: Sequence[int]
) -> dict[int, list[GalleryCaption]]:
    """Return the captions of each image by the first seed of every setting."""
    points = [(curve.label, point) for curve in build_curves(results) for point in curve.points]
    runs, first, style = [point.runs[0] for _, point in points], results.first_judge.name, choose_styles(results)
    columns = {run.column("rank", judge) for run in runs for judge in results.judges}
    columns |= {run.column("retrieved", judge) for run in runs for judge in results.first_and_last_judge}
    captions: dict[int, list[GalleryCaption]] = {image: [] for image in images}
    for (line, point), run, rows in zip(points, runs, read_captions(runs, images, ["caption", *columns]), strict=True):
        cider, score = point.mean("test", "language", "CIDEr"), point.mean("test", *results.score_keys(first))
        means = [f"CIDEr {cider:.3f}"] if cider is not None else []
        means += [f"{results.score} {score:.1f}"] if score is not None else []
        keys = dict.fromkeys((*SYMBOLS, results.curve_setting(run.method)))
        for image in images:
            row = rows.get(image) or {}
            ranks = {judge: row.get(run.column("rank", judge)) for judge in results.judges}
            if run.frozen:
                ranks[ADAPTED] = None  # the adapted listener of a frozen speaker is its own listener
            captions[image].append(
                GalleryCaption(
                    method=run.method,
                    line=line,
                    style=style[line],
                    setting=", ".join(format_named_setting(run, key) for key in keys if key in run.settings),
                    means=", ".join(means),
                    caption=row.get("caption"),
                    ranks=ranks,
                    retrieved={
                        j: tuple(row.get(run.column("retrieved", j)) or ()) for j in results.first_and_last_judge
                    },
                    views=tuple(view.name for view in views if id(point) in view.points),
                )
            )
    return captions


def _read_human_captions(prepared: Path, images: Iterable[int]) -> dict[int, list[str]]:
    texts: dict[int, list[str]] = defaultdict(list)
    rows = read_rows(prepared / "captions.parquet", ["image", "text"], [("image", "in", list(images))])
    for row in rows.to_pylist():
        texts[row["image"]].append(row["text"])
    return texts


def open_thumbnail(path: Path, longest_side: int) -> Image.Image:
    """Return an image file, or `open_first_frame` of a film, as RGB with at most `longest_side` pixels per side.

    Transparent pixels are drawn on white, and 16-bit grey is scaled to 8 bits, as `open_image` does for the captioner.
    Raises UserError where the file cannot be read.
    """
    try:
        if is_moving(path):
            picture = open_first_frame(path)
            picture.thumbnail((longest_side, longest_side))
            return picture
        with Image.open(path) as image:
            image.draft("RGB", (longest_side, longest_side))  # decode a JPEG no larger than needed
            image.load()
            picture = to_upright_rgb(image)
    except UserError:
        raise
    except Exception as error:  # decoders raise many types of errors for damaged files
        raise UserError(
            f"{path}: the image or film cannot be read ({summarise_error(error)}); restore it or prepare the data again"
        ) from None
    picture.thumbnail((longest_side, longest_side))
    return picture
