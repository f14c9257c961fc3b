"""Photos that come over the network: how many, how large, and what of them is looked at."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

from PIL import Image

from pipeline.errors import UserError, reason
from pipeline.features.images import shown

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


@dataclass(frozen=True)
class Limits:
    """What one request may cost."""

    megabytes: int = 40  # of a whole request
    megapixels: int = 50  # of a photo
    photos: int = 60
    seconds: float = 60


def decoded(content: bytes, limits: Limits) -> Image.Image:
    """An uploaded photo as upright RGB pixels without its metadata; UserError where it is none, or too large."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is ours
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                if image.width * image.height > limits.megapixels * 1_000_000:
                    raise UserError(f"the photo has more than {limits.megapixels} megapixels")
                image.load()
                return Image.frombytes("RGB", (rgb := shown(image)).size, rgb.tobytes())
    except UserError:
        raise
    except Exception as error:  # decoders of damaged files raise nearly anything
        raise UserError(f"not a photo that can be decoded ({reason(error)})") from None
