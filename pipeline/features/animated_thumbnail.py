"""Images for pages: animated thumbnails of films of any format, and data URIs."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.features.film_extractor import open_film
from pipeline.features.images import open_image
from pipeline.runtime.film_decoding import is_moving, read_timeline

if TYPE_CHECKING:
    from PIL import Image

FRAMES = 12  # largest number of frames of a thumbnail
QUALITY = 60  # quality of WebP, in 0 … 100


def make_animated_thumbnail(path: Path, max_side: int) -> str:
    """Return a film as the data URI of an animated WebP of at most `max_side` pixels per side; "" for a still image.

    The animation lasts as long as the film, but at least 20 ms per frame. An image that cannot be opened counts as a
    still image. Raises the errors of `open_film` for a film.
    """
    if not is_moving(path):
        return ""
    timeline = read_timeline(path)
    frames = [_make_thumbnail(frame, max_side) for frame in open_film(path, min(len(timeline.durations), FRAMES))]
    frame_ms = max(round(1000 * float(sum(timeline.durations) / timeline.ticks_per_second) / len(frames)), 20)
    content = io.BytesIO()
    frames[0].save(
        content, "WEBP", save_all=True, append_images=frames[1:], duration=frame_ms, loop=0, quality=QUALITY, method=2
    )
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode('ascii')}"


def open_first_frame(path: Path) -> Image.Image:
    """Return the first frame of a film's thumbnail, or the still image, as RGB.

    Raises the errors of `open_film` or `open_image`.
    """
    if not is_moving(path):
        return open_image(path)
    return next(open_film(path, min(len(read_timeline(path).durations), FRAMES)))


def encode_data_uri(image: Image.Image, quality: int) -> str:
    """Return the image as a data URI in JPEG of this quality."""
    content = io.BytesIO()
    image.save(content, format="JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode("ascii")


def _make_thumbnail(frame: Image.Image, max_side: int) -> Image.Image:
    copy = frame.copy()
    copy.thumbnail((max_side, max_side))
    return copy
