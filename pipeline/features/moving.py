"""Small copies of films for pages: one picture that moves, whatever the film's format."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.features.films import open_film
from pipeline.features.images import open_image
from pipeline.runtime.films import moves, timeline

if TYPE_CHECKING:
    from PIL import Image

FRAMES = 12  # of a copy, at most
QUALITY = 60  # of WebP


def moving_copy(path: Path, longest: int) -> str:
    """A film as the address of an animated WebP, its longer side `longest` pixels at most; of a still image empty.

    It lasts as long as the film. Raises what `open_film` does.
    """
    if not moves(path):
        return ""
    times = timeline(path)
    frames = [_small(frame, longest) for frame in open_film(path, min(len(times.lasts), FRAMES))]
    shown = max(round(1000 * float(sum(times.lasts) / times.second) / len(frames)), 20)  # ms
    content = io.BytesIO()
    frames[0].save(
        content, "WEBP", save_all=True, append_images=frames[1:], duration=shown, loop=0, quality=QUALITY, method=2
    )
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode('ascii')}"


def first_frame(path: Path) -> Image.Image:
    """The first frame of that copy as an RGB image; of a still image all there is. Raises what `open_image` does."""
    if not moves(path):
        return open_image(path)
    return next(open_film(path, min(len(timeline(path).lasts), FRAMES)))


def _small(frame: Image.Image, longest: int) -> Image.Image:
    copy = frame.copy()
    copy.thumbnail((longest, longest))
    return copy
