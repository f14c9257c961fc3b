"""Some images of the test split, what each method says of them along λ, and what its listener finds by that."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import UserError
from pipeline.reporting.captions import known, read_captions, rows_of
from pipeline.reporting.figures import styles
from pipeline.reporting.results import SYMBOLS, Results, Run
from pipeline.reporting.selection import ReportSettings
from pipeline.reporting.svg import Look, look
from pipeline.reporting.tables import setting
from pipeline.reporting.tradeoff import curves

if TYPE_CHECKING:
    from PIL.Image import Image

    from pipeline.reporting.along import View

LONGEST_SIDE = 320  # pixels of a picture on the page
THUMBNAIL = 88  # pixels of one to pick from, or of one that a listener found
BUDGET = 2_000_000  # characters of all thumbnails: the page stays small enough to be sent


@dataclass(frozen=True)
class Said:
    """One setting's caption of an image and the image's rank among all, by each judge (1 is best)."""

    method: str
    line: str  # the figures' label and look
    look: Look
    setting: str
    means: str  # the setting's CIDEr and R@10
    caption: str | None
    ranks: Mapping[str, int | None]
    found: tuple[int, ...]  # rows of the images that the own listener puts first, best first
    views: tuple[str, ...]  # in which it is seen


@dataclass(frozen=True)
class Picture:
    """An image of the gallery; `row` is its place in the data set."""

    row: int
    id: str
    file: str
    image: Image
    human: tuple[str, ...]
    said: tuple[Said, ...]

    @property
    def text(self) -> str:
        """What the first person says of it."""
        return self.human[0] if self.human else ""

    @cached_property
    def data_uri(self) -> str:
        return _data_uri(self.image, 85)


@dataclass(frozen=True)
class Thumbnail:
    """A small picture, embedded once however often it is shown, and what a person says of it."""

    src: str
    text: str


def gallery(
    results: Results, views: Sequence[View], prepared: Path, images_root: Path, settings: ReportSettings
) -> list[Picture]:
    """`settings.images` images drawn at random from the test split, in the order of the data set.

    Where a setting was run with several seeds, the first one speaks. Raises UserError if a file is missing.
    """
    rows = rows_of(prepared / "images.parquet", ["image", "id", "file"], [("split", "==", "test")])
    draw = np.random.Generator(np.random.Philox(key=[settings.seed, 0]))
    picked = sorted(draw.choice(len(rows), size=min(settings.images, len(rows)), replace=False).tolist())
    rows = [rows[n] for n in picked]
    wanted = [row["image"] for row in rows]
    if not wanted:
        return []
    human = _human(prepared, wanted)
    points = [(curve.label, point) for curve in curves(results) for point in curve.points]
    captions = read_captions([point.runs[0] for _, point in points], wanted)
    judges, style = list(results.judges), styles(results)
    said: dict[int, list[Said]] = {image: [] for image in wanted}
    for (line, point), by_image in zip(points, captions, strict=True):
        seen = tuple(view.name for view in views if id(point) in view.points)
        cider, ten = point.mean("test", "language", "CIDEr"), point.mean("test", "own", "text_to_image", "R@10")
        means = [f"CIDEr {cider:.3f}"] if cider is not None else []
        means += [f"R@10 {ten:.1f}"] if ten is not None else []
        for image in wanted:
            row = by_image.get(image) or {}
            said[image].append(_said(point.runs[0], line, look(style[line]), ", ".join(means), row, judges, seen))
    return [
        Picture(
            row=row["image"],
            id=row["id"],
            file=row["file"],
            image=_open(images_root / row["file"], LONGEST_SIDE),
            human=tuple(human.get(row["image"], ())),
            said=tuple(said[row["image"]]),
        )
        for row in rows
    ]


def thumbnails(pictures: Sequence[Picture], prepared: Path, images_root: Path) -> dict[int, Thumbnail]:
    """The pictures, and the images that listeners found by their captions, by row; the most often found first.

    Where they are more than BUDGET characters, the rest is left out. Raises UserError if a file is missing.
    """
    often = Counter(row for picture in pictures for words in picture.said for row in words.found)
    order = sorted(often, key=lambda row: (-often[row], row))
    wanted = list(dict.fromkeys([*(picture.row for picture in pictures), *order]))
    if not wanted:
        return {}
    files = {
        row["image"]: row["file"]
        for row in rows_of(prepared / "images.parquet", ["image", "file"], [("image", "in", wanted)])
    }
    human = _human(prepared, wanted)
    found, left = {}, BUDGET
    for row in wanted:
        if row not in files:
            continue
        src = _data_uri(_open(images_root / files[row], THUMBNAIL), 70)
        left -= len(src)
        if left < 0:
            break
        found[row] = Thumbnail(src, (human.get(row) or [""])[0])
    return found


def _said(
    run: Run, line: str, look: Look, means: str, row: Mapping[str, Any], judges: Sequence[str], views: tuple[str, ...]
) -> Said:
    parts = [f"{SYMBOLS[key]} {setting(run, key)}" for key in SYMBOLS if key in run.settings]
    ranks = {judge: _rank(row.get(run.rank_column(judge))) for judge in judges}
    if run.frozen:
        ranks["adapted"] = None  # it is the own one
    found = tuple(row.get(run.retrieved_column) or ())
    return Said(run.method, line, look, ", ".join(parts), means, row.get("caption"), ranks, found, views)


def _rank(value: Any) -> int | None:
    return None if known(value) is None else int(value)


def _human(prepared: Path, images: Iterable[int]) -> dict[int, list[str]]:
    texts: dict[int, list[str]] = {}
    for row in rows_of(prepared / "captions.parquet", ["image", "text"], [("image", "in", list(images))]):
        texts.setdefault(row["image"], []).append(row["text"])
    return texts


def _open(path: Path, longest: int) -> Image:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            image.draft("RGB", (longest, longest))  # a JPEG is decoded no larger than needed
            picture = ImageOps.exif_transpose(image).convert("RGB")
    except OSError as error:
        raise UserError(f"{path}: the image cannot be read ({error}); put it back or prepare the data again.") from None
    picture.thumbnail((longest, longest))
    return picture


def _data_uri(image: Image, quality: int) -> str:
    out = io.BytesIO()
    image.save(out, format="JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")
