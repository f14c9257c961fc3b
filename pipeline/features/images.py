"""Image decoding: files as upright 8-bit RGB, within a memory limit that all threads share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Condition
from typing import IO

import numpy as np
from PIL import ExifTags, Image, ImageOps

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.film_decoding import is_film
from pipeline.runtime.memory import return_freed

MAX_PIXELS = 25_000_000  # pixels of a decoded image; a larger image is reduced by an integer factor
MEMORY = 800_000_000  # bytes for decoding, shared by all threads
LARGE = 100_000_000  # bytes; after a larger decoding, freed memory is returned to the system
STRIP = 1_000_000  # pixels that are converted to RGB at once
ONE_BYTE_MODES = ("1", "L", "P")  # other modes count as four bytes per pixel
DECODERS = {  # bytes per pixel that a decoder keeps in addition to the decoded image, by format
    "PNG": 0, "BMP": 0, "DIB": 0, "PPM": 0, "GIF": 1, "TIFF": 8, "WEBP": 13, "AVIF": 16, "JPEG2000": 24,
}  # fmt: skip
UNKNOWN_DECODER = 24  # bytes per pixel for any other format
JPEG = ("JPEG", "MPO")


class MemoryBudget:
    """Memory budget in bytes, shared by threads. A thread waits until the bytes that it reserves are free."""

    def __init__(self, size: int):
        self._free, self._changed = size, Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes until the block ends. `size` must not exceed the budget's total."""
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
def decode_within(
    file: Path | IO[bytes],
    bytes_per_pixel: int = 4,
    formats: tuple[str, ...] | None = None,
    max_megapixels: float | None = None,
) -> Iterator[Image.Image]:
    """Decode an image file as `open_image` does, and reserve memory for the block.

    The block may use `bytes_per_pixel` further bytes for each pixel of the result. Threads that would together use more
    than `MEMORY` bytes wait for each other. `formats` are the names of allowed formats. Raises UserError for an image
    of more than `max_megapixels`, and for an image whose decoding needs more than `MEMORY` bytes. Damaged files raise
    the errors of their decoders.
    """
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # the limits below replace this warning
    with Image.open(file, formats=formats) as image:
        size = image.width * image.height
        if max_megapixels is not None and size > 1_000_000 * max_megapixels:
            raise UserError(
                f"the photo has {size / 1e6:.1f} megapixels, and the limit is {max_megapixels:g}; make the photo "
                "smaller"
            )
        if image.format in JPEG:
            decoder = 2 * len(image.getbands()) * size  # the coefficients of a file with several scans
            if (factor := _choose_reduction_factor(image)) > 1:
                image.draft(None, (image.width // factor, image.height // factor))  # type: ignore[arg-type]
        else:
            decoder = DECODERS.get(image.format or "", UNKNOWN_DECODER) * size
        source = (1 if image.mode in ONE_BYTE_MODES else 4) * image.width * image.height
        result = math.prod(_divide_size(image, _choose_reduction_factor(image)))
        if (needed := max(decoder + source + 4 * result, (4 + bytes_per_pixel) * result)) > MEMORY:
            raise UserError(
                f"an image of {size / 1e6:.0f} megapixels ({image.format}) needs {needed / 1e9:.1f} GB to be decoded, "
                f"and the limit is {MEMORY / 1e9:g} GB; make the image smaller"
            )
        with BUDGET.reserve(needed):
            image.load()
            pixels = to_upright_rgb(image)
            image.close()  # frees the decoded pixels
            if needed > LARGE:
                return_freed()  # without this call, the process would keep the memory while it decodes the next image
            yield pixels


def open_image(path: Path) -> Image.Image:
    """Return an image file as RGB, rotated by its EXIF orientation; for an animation, its first frame.

    Transparent pixels are drawn on white; 16-bit grey is scaled to 8 bits. An image of more than 25 megapixels is
    reduced to at most 25. Raises the errors of `open_within`.
    """
    with open_within(path) as image:
        return image


@contextmanager
def open_within(path: Path, bytes_per_pixel: int = 4) -> Iterator[Image.Image]:
    """Open an image file as `open_image` does, for a block that uses `bytes_per_pixel` further bytes per pixel.

    Raises FileNotFoundError where there is no file. Raises UserError where the file is empty, truncated, a film, or
    larger than Pillow's limit (179 megapixels). Raises UserError where decoding needs more than `MEMORY` bytes, and for
    pixels that cannot be converted to RGB.
    """
    with ExitStack() as stack:
        try:
            if path.stat().st_size == 0:
                raise UserError("the image file is empty (zero bytes); copy it again")
            if is_film(path):
                raise UserError("expected an image, found a film; give an image, or train with features.main.frames")
            image = stack.enter_context(decode_within(path, bytes_per_pixel))
        except FileNotFoundError:
            raise
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except Exception as error:  # damaged files raise errors of any type
            cause = summarise_error(error, 1000).replace(str(path), path.name)
            raise UserError(f"{path}: the image cannot be decoded ({cause}); replace the file") from None
        yield image


def to_upright_rgb(image: Image.Image) -> Image.Image:
    """Return a decoded image as upright 8-bit RGB without metadata, as a viewer shows it.

    An image of more than 25 megapixels is reduced to at most 25. Raises ValueError for floating-point pixels, and for
    integers outside 0 … 65,535.
    """
    factor, (width, height) = _choose_reduction_factor(image), image.size
    rows = max(STRIP // width // factor, 1) * factor
    result = Image.new("RGB", _divide_size(image, factor))
    for top in range(0, height, rows):  # strips save memory: a whole transparent image would need five copies
        strip = _to_rgb(image.crop((0, top, width, min(top + rows, height))))
        result.paste(strip.reduce(factor) if factor > 1 else strip, (0, top // factor))
    _apply_orientation(result, image)
    return result


def _choose_reduction_factor(image: Image.Image) -> int:
    """Return the smallest integer by which to divide an image's sides for at most `MAX_PIXELS` pixels."""
    return next(factor for factor in count(1) if math.prod(_divide_size(image, factor)) <= MAX_PIXELS)


def _divide_size(image: Image.Image, factor: int) -> tuple[int, int]:
    """Return the width and height of an image whose sides are divided by `factor` and rounded up."""
    return -(-image.width // factor), -(-image.height // factor)


def _apply_orientation(pixels: Image.Image, image: Image.Image) -> None:
    """Rotate or mirror `pixels` by the EXIF orientation of `image`."""
    with suppress(Exception):  # a damaged EXIF block has no orientation; the pixels are undamaged
        pixels.getexif()[ExifTags.Base.Orientation] = image.getexif()[ExifTags.Base.Orientation]
        ImageOps.exif_transpose(pixels, in_place=True)
    pixels.getexif().clear()


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # convert() would clip at 255
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65_535:
            raise ValueError("integers outside 0 … 65,535 have no known range; convert the image to 8 or 16 bits")
        grey = np.rint(values.astype(np.float32) / 257).astype(np.uint8)  # 65,535 is 255 · 257
        grey[values == image.info.get("transparency", -1)] = 255  # a PNG has one transparent value; it is drawn white
        return Image.fromarray(grey).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range; convert the image to 8 or 16 bits")
    return image.convert("RGB")
