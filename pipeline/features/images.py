"""Opening an image file: whatever its mode, it becomes upright 8-bit RGB, or one line that says why not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.errors import UserError, reason

if TYPE_CHECKING:
    from PIL import Image


def open_image(path: Path) -> Image.Image:
    """An image file as RGB, turned as its EXIF orientation says; of an animation the first frame.

    What is transparent lies on white; 16-bit grey is scaled to 8 bits. FileNotFoundError: there is no such file;
    UserError: it is empty, cut off, larger than Pillow admits, or no image of a kind that can be shown as RGB.
    """
    from PIL import Image

    try:
        if path.stat().st_size == 0:
            raise UserError(f"{path}: the image file is empty (zero bytes)")
        with Image.open(path) as image:
            image.load()
            return _rgb(_upright(image))
    except (FileNotFoundError, UserError):
        raise
    except Exception as error:  # decoders of damaged files raise nearly anything
        why = reason(error, 1000).replace(str(path), path.name)
        raise UserError(f"{path}: the image cannot be decoded ({why})") from None


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # a damaged EXIF block tells no orientation; the picture is whole
        return image


def _rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    if image.mode.startswith("I"):  # convert() would clip at 255
        grey = np.asarray(image).astype(np.float32) / 257  # 65,535 is 255 · 257
        image = Image.fromarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels, of which nobody knows what is white")
    return image.convert("RGB")
