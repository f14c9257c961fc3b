"""An HTML page of retrieved photos: thumbnails inside the page, links to the photos."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.errors import one_line
from pipeline.features.animated_thumbnail import animated_thumbnail, first_frame
from saywhich.offline_page import PLAIN, write_offline_page

SHOWN = 360  # pixels of a thumbnail's longer side


def write_page(out: Path, text: str, found: Sequence[tuple[Path, float]]) -> None:
    """Write a self-contained page to `out`: the query `text`, and the photos with their scores, best first."""
    photos = [
        {
            "name": one_line(file.name),
            "url": file.resolve().as_uri(),
            "score": f"{score:.3f}",
            "thumbnail": thumbnail_url(first_frame(file)),
            "animation": animated_thumbnail(file, SHOWN),
        }
        for file, score in found
    ]
    write_offline_page(out, "found.html", styles=[PLAIN], text=one_line(text), photos=photos)


def thumbnail_url(image: Image.Image) -> str:
    """Return a JPEG thumbnail of an RGB image as a data URL, without metadata."""
    copy, content = image.copy(), io.BytesIO()
    copy.thumbnail((SHOWN, SHOWN))
    Image.fromarray(np.asarray(copy)).save(content, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
