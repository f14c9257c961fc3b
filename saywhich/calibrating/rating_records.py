"""Ratings of captions by people, in the form that the readers of all file forms return."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from saywhich.judging.caption_files import ImageKey


@dataclass(frozen=True)
class CaptionRating:
    """Rating of a caption of an image; ratings without a rater's name are by different people."""

    image: ImageKey
    caption: str
    rating: float
    rater: str = ""


@dataclass(frozen=True)
class RatingFile:
    """Content of a rating file: the ratings, and the images' references."""

    ratings: list[CaptionRating]
    references: dict[ImageKey, list[str]] = field(default_factory=dict)


def parse_rating(value: Any) -> float | None:
    """Parse a rating; return NaN for an empty value or NaN, and None for any other value that is no finite number."""
    if value is None or value == "":
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isinf(number) else number
