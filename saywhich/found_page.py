"""A page of photos that were found by words: small copies inside, links to the photos themselves."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from pipeline.errors import one_line
from pipeline.features.moving import first_frame, moving_copy
from saywhich.outputs import output

SHOWN = 360  # pixels of a small copy's longer side


def write_page(out: Path, text: str, found: Sequence[tuple[Path, float]]) -> None:
    """Write a page of its own to `out`: the photos with their scores, the best first, and what was asked for."""
    photos = [
        {
            "name": one_line(file.name),
            "address": file.resolve().as_uri(),
            "score": f"{score:.3f}",
            "small": small_copy(first_frame(file)),
            "moving": moving_copy(file, SHOWN),
        }
        for file, score in found
    ]
    pages = Environment(loader=PackageLoader("saywhich", "pages"), autoescape=True, undefined=StrictUndefined)
    with output(out) as page:
        page.write(pages.get_template("found.html").render(text=one_line(text), photos=photos))


def small_copy(image: Image.Image) -> str:
    """A JPEG of an RGB image as an address of its own, without metadata."""
    copy, content = image.copy(), io.BytesIO()
    copy.thumbnail((SHOWN, SHOWN))
    Image.fromarray(np.asarray(copy)).save(content, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
