"""Opening an image file of any mode as upright 8-bit RGB, within a bound of memory that all threads share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import IO, TYPE_CHECKING

import numpy as np

from pipeline.errors import UserError, reason
from pipeline.runtime.films import is_film
from pipeline.runtime.memory import return_freed

if TYPE_CHECKING:
    from PIL import Image

LARGEST = 25_000_000  # pixels of a decoded image; a larger one is reduced by a whole number
MEMORY = 800_000_000  # bytes that all threads together decode images in
LARGE = 100_000_000  # bytes of decoding after which freed memory is returned to the system
STRIP = 1_000_000  # pixels that are converted to RGB at once
FLAT = ("1", "L", "P")  # modes of one byte a pixel; the others have four
DECODERS = {  # bytes a pixel that a decoder keeps beside the decoded image, by format
    "PNG": 0, "BMP": 0, "DIB": 0, "PPM": 0, "GIF": 1, "TIFF": 8, "WEBP": 13, "AVIF": 16, "JPEG2000": 24,
}  # fmt: skip
UNKNOWN_DECODER = 24
JPEG = ("JPEG", "MPO")


class MemoryBudget:
    """Bytes that several threads share: a thread that asks for more than are free waits."""

    def __init__(self, size: int):
        self._free, self._changed = size, Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Take `size` bytes, which must not be more than there are in all, until the block ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


BUDGET = MemoryBudget(MEMORY)


@contextmanager
def decoded(
    file: Path | IO[bytes], used: int = 4, formats: tuple[str, ...] | None = None, largest: float | None = None
) -> Iterator[Image.Image]:
    """Decode an image file as `open_image` does; the block may use `used` bytes more for each pixel of the result.

    Threads that would together use more than `MEMORY` bytes wait for each other. `formats`: the names of the formats
    that are allowed; `largest`: the most megapixels. Raises UserError for an image that needs more than `MEMORY` bytes.
    """
    from PIL import Image

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # the bounds are those below
    with Image.open(file, formats=formats) as image:
        size = image.width * image.height
        if largest is not None and size > 1_000_000 * largest:
            raise UserError(f"the photo has more than {largest:g} megapixels")
        if image.format in JPEG:
            decoder = 2 * len(image.getbands()) * size  # the coefficients of a file of several scans
            if (factor := _factor(image)) > 1:
                image.draft(None, (image.width // factor, image.height // factor))  # type: ignore[arg-type]
        else:
            decoder = DECODERS.get(image.format or "", UNKNOWN_DECODER) * size
        source = (1 if image.mode in FLAT else 4) * image.width * image.height
        result = image.width * image.height // _factor(image) ** 2
        if (needed := max(decoder + source + 4 * result, (4 + used) * result)) > MEMORY:
            raise UserError(
                f"an image of {size / 1e6:.0f} megapixels ({image.format}) needs {needed / 1e9:.1f} GB to be decoded "
                f"where {MEMORY / 1e9:g} GB are given; make it smaller"
            )
        with BUDGET.reserve(needed):
            image.load()
            pixels = shown(image)
            image.close()  # frees what was decoded
            if needed > LARGE:  # otherwise the next thread's image is added to what this one has freed
                return_freed()
            yield pixels


def open_image(path: Path) -> Image.Image:
    """An image file as RGB, rotated by its EXIF orientation; of an animation the first frame.

    Transparent pixels are drawn on white; 16-bit grey is scaled to 8 bits. An image of more than 25 megapixels is
    reduced to at most so many. Raises as `opened` does.
    """
    with opened(path) as image:
        return image


@contextmanager
def opened(path: Path, used: int = 4) -> Iterator[Image.Image]:
    """Open an image file as `open_image` does, for a block that uses `used` bytes more for each of its pixels.

    Raises FileNotFoundError where there is no file, and UserError where it is empty, cut off, larger than Pillow
    admits, needs more memory than is given, is a film, or cannot be shown as RGB.
    """
    with ExitStack() as stack:
        try:
            if path.stat().st_size == 0:
                raise UserError("the image file is empty (zero bytes)")
            if is_film(path):
                raise UserError("a film, of which nothing here sees more than one image; set features.main.frames")
            image = stack.enter_context(decoded(path, used))
        except FileNotFoundError:
            raise
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except Exception as error:  # decoders of damaged files raise nearly anything
            why = reason(error, 1000).replace(str(path), path.name)
            raise UserError(f"{path}: the image cannot be decoded ({why})") from None
        yield image


def shown(image: Image.Image) -> Image.Image:
    """Return what a viewer shows of a decoded image of any mode: upright 8-bit RGB, without its metadata.

    An image of more than 25 megapixels is reduced to at most so many. Raises ValueError for floating-point pixels.
    """
    from PIL import Image

    factor, (width, height) = _factor(image), image.size
    rows = max(STRIP // width // factor, 1) * factor
    result = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    for top in range(0, height, rows):  # converted at once, an image with transparency would be in memory five times
        strip = _rgb(image.crop((0, top, width, min(top + rows, height))))
        result.paste(strip.reduce(factor) if factor > 1 else strip, (0, top // factor))
    _turn(result, image)
    return result


def _factor(image: Image.Image) -> int:
    """By how much an image's sides are divided, so that it has `LARGEST` pixels at most."""
    return math.ceil(math.sqrt(image.width * image.height / LARGEST))


def _turn(pixels: Image.Image, image: Image.Image) -> None:
    """Turn `pixels` as the EXIF block of `image` says."""
    from PIL import ExifTags, ImageOps

    with suppress(Exception):  # a damaged EXIF block has no orientation; the pixels are undamaged
        pixels.getexif()[ExifTags.Base.Orientation] = image.getexif()[ExifTags.Base.Orientation]
        ImageOps.exif_transpose(pixels, in_place=True)
    pixels.getexif().clear()


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
