"""Ratings of captions by people, as every form of file gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from saywhich.judging.caption_files import ImageKey


@dataclass(frozen=True)
class CaptionRating:
    """One person's rating of a caption of an image; a rater without a name is a person of its own."""

    image: ImageKey
    caption: str
    rating: float
    rater: str = ""


@dataclass(frozen=True)
class RatingFile:
    """Ratings, and the images' references."""

    ratings: list[CaptionRating]
    references: dict[ImageKey, list[str]] = field(default_factory=dict)


def parse_rating(given: Any) -> float | None:
    """Return a rating; NaN where it is empty, and None where it is no number."""
    if given is None or given == "":
        return math.nan
    try:
        number = float(given)
    except (TypeError, ValueError):
        return None
    return None if math.isinf(number) else number
