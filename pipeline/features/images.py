"""Opening an image file of any mode as upright 8-bit RGB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.errors import UserError, reason
from pipeline.runtime.films import is_film

if TYPE_CHECKING:
    from PIL import Image


def open_image(path: Path) -> Image.Image:
    """An image file as RGB, rotated by its EXIF orientation; of an animation the first frame.

    Transparent pixels are drawn on white; 16-bit grey is scaled to 8 bits. Raises FileNotFoundError where there is no
    file, and UserError where it is empty, cut off, larger than Pillow admits, a film, or cannot be shown as RGB.
    """
    from PIL import Image

    try:
        if path.stat().st_size == 0:
            raise UserError(f"{path}: the image file is empty (zero bytes)")
        if is_film(path):
            raise UserError(f"{path}: a film, of which nothing here sees more than one image; set features.main.frames")
        with Image.open(path) as image:
            image.load()
            return shown(image)
    except (FileNotFoundError, UserError):
        raise
    except Exception as error:  # decoders of damaged files raise nearly anything
        why = reason(error, 1000).replace(str(path), path.name)
        raise UserError(f"{path}: the image cannot be decoded ({why})") from None


def shown(image: Image.Image) -> Image.Image:
    """What a viewer shows of a decoded image of any mode: upright 8-bit RGB, without its metadata.

    Raises ValueError for floating-point pixels.
    """
    return _rgb(_upright(image))


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # a damaged EXIF block has no orientation; the pixels are undamaged
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
        raise ValueError("floating-point pixels, whose range is unknown")
    return image.convert("RGB")
