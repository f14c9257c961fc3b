"""An HTML page of retrieved photos, with embedded thumbnails and links to the photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import escape_line
from pipeline.features.animated_thumbnail import encode_data_uri, make_animated_thumbnail, open_first_frame
from saywhich.offline_page import PLAIN_STYLE, write_offline_page

THUMBNAIL_SIDE = 360  # pixels of a thumbnail's longer side


def write_page(out: Path, text: str, matches: Sequence[tuple[Path, float]]) -> None:
    """Write a self-contained page to `out`: the query `text`, and the photos with their scores, best first."""
    photos = [
        {
            "name": escape_line(file.name),
            "url": file.resolve().as_uri(),
            "score": f"{score:.3f}",
            "thumbnail": encode_thumbnail_url(file),
            "animation": make_animated_thumbnail(file, THUMBNAIL_SIDE),
        }
        for file, score in matches
    ]
    write_offline_page(out, "found.html", styles=[PLAIN_STYLE], text=escape_line(text), photos=photos)


def encode_thumbnail_url(photo: Path, side: int = THUMBNAIL_SIDE) -> str:
    """Return a photo, or the first frame of a film, as a data URI of a JPEG of at most `side` pixels per side."""
    image = open_first_frame(photo)
    image.thumbnail((side, side))
    return encode_data_uri(image, 80)
