"""Some images of the test split with what each method says of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import UserError
from pipeline.reporting.results import JUDGES, Run
from pipeline.reporting.selection import Choice, ReportSettings

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 320  # pixels of a picture on the page


@dataclass(frozen=True)
class Said:
    """One method's caption of an image and the image's rank among all, by each judge (1 is best)."""

    method: str
    setting: str
    caption: str | None
    ranks: Mapping[str, int | None]


@dataclass(frozen=True)
class Picture:
    """An image of the gallery."""

    id: str
    file: str
    image: Image
    human: str
    said: tuple[Said, ...]

    @property
    def data_uri(self) -> str:
        out = io.BytesIO()
        self.image.save(out, format="JPEG", quality=88)
        return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def gallery(choices: Sequence[Choice], prepared: Path, images_root: Path, settings: ReportSettings) -> list[Picture]:
    """`settings.images` images drawn at random from the test split, in the order of the data set.

    Where a setting was run with several seeds, the first one speaks. Raises UserError if a file is missing.
    """
    rows = _rows(prepared / "images.parquet", ["image", "id", "file"], [("split", "==", "test")])
    draw = np.random.Generator(np.random.Philox(key=[settings.seed, 0]))
    picked = sorted(draw.choice(len(rows), size=min(settings.images, len(rows)), replace=False).tolist())
    rows = [rows[n] for n in picked]
    wanted = [row["image"] for row in rows]
    if not wanted:
        return []
    human: dict[int, str] = {}
    for row in _rows(prepared / "captions.parquet", ["image", "text"], [("image", "in", wanted)]):
        human.setdefault(row["image"], row["text"])
    speakers = [
        (choice.point.runs[0], read_captions(choice.point.runs[0], wanted)) for choice in choices if choice.point
    ]
    return [
        Picture(
            id=row["id"],
            file=row["file"],
            image=_open(images_root / row["file"]),
            human=human.get(row["image"], ""),
            said=tuple(_said(run, captions.get(row["image"])) for run, captions in speakers),
        )
        for row in rows
    ]


def read_captions(run: Run, images: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The rows of `run`'s captions of test images, by image."""
    filters: list[Any] = [("split", "==", "test"), ("image", "in", list(images))]
    if not run.in_sweep:
        rows = _rows(run.captions, None, filters)
    elif run.cell is not None:
        rows = _rows(run.captions, None, [*filters, ("method", "==", run.method), ("cell", "==", run.cell)])
    else:
        rows = _rows(run.captions, None, [*filters, ("method", "==", run.method)])
        rows = [row for row in rows if all(_same(row.get(k), run.settings.get(k)) for k in ("lambda", "rho", "seed"))]
    return {row["image"]: row for row in rows}


def gallery_png(pictures: Sequence[Picture]) -> bytes:
    """The gallery as one picture: three images a row, captions below."""
    from matplotlib.figure import Figure

    from pipeline.reporting.figures import png

    columns = 3
    texts = [_lines(picture) for picture in pictures]
    rows = [range(n, min(n + columns, len(pictures))) for n in range(0, len(pictures), columns)] or [range(0)]
    heights = [2.6 + 0.155 * max((len(texts[n]) for n in row), default=0) + 0.35 for row in rows]
    figure = Figure(figsize=(4.0 * columns, sum(heights)), dpi=100)
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    figure.subplots_adjust(left=0.005, right=0.995, top=1, bottom=0, wspace=0.02, hspace=0)
    for axes in grid.flat:
        axes.axis("off")
    for y, (row, height) in enumerate(zip(rows, heights, strict=True)):
        for x, n in enumerate(row):
            axes = grid[y, x]
            photo = axes.inset_axes((0, 1 - 2.7 / height, 1, 2.6 / height))
            photo.imshow(pictures[n].image)
            photo.set_anchor("W")
            photo.axis("off")
            axes.text(
                0,
                1 - 2.76 / height,
                "\n".join(texts[n]),
                transform=axes.transAxes,
                va="top",
                fontsize=7.5,
                linespacing=1.3,
            )
    return png(figure)


def _lines(picture: Picture) -> list[str]:
    """What stands below a picture, wrapped; the rank by the own listener in brackets."""
    import textwrap

    said = [f"a person: {_plain(picture.human)}"]
    for words in picture.said:
        rank = words.ranks.get("own")
        said.append(f"{words.method} [{'–' if rank is None else rank}]: {_plain(words.caption or '–')}")
    return [line for text in said for line in textwrap.wrap(text, 62, subsequent_indent="   ")]


def _said(run: Run, row: Mapping[str, Any] | None) -> Said:
    row = row or {}
    parts = [f"{'λρ'[key == 'rho']} {run.settings[key]}" for key in ("lambda", "rho") if key in run.settings]
    ranks = {judge: _rank(row.get(f"rank_{judge}")) for judge in JUDGES}
    return Said(run.method, ", ".join(parts), row.get("caption"), ranks)


def _rank(value: Any) -> int | None:
    return None if value is None or value != value else int(value)


def _same(stored: Any, wanted: Any) -> bool:
    """Parquet keeps a missing number as null or NaN."""
    return wanted is None if stored is None or stored != stored else stored == wanted


def _plain(text: str) -> str:
    """Matplotlib would take a dollar sign for mathematics."""
    return text.replace("$", r"\$")


def _rows(path: Path, columns: list[str] | None, filters: list[Any]) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, columns=columns, filters=filters).to_pylist()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); delete it and run its stage again.") from None


def _open(path: Path) -> Image:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            picture = ImageOps.exif_transpose(image).convert("RGB")
    except OSError as error:
        raise UserError(f"{path}: the image cannot be read ({error}); put it back or prepare the data again.") from None
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return picture
