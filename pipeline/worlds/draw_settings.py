"""Settings of drawn scenes and films."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline.ranges import Count
from pipeline.section import Section
from pipeline.worlds.scenes.scene_world import MAX_IMAGES, NEIGHBOURS

Images = Annotated[int, Field(ge=1, le=MAX_IMAGES)]


def _check_splits(images: int, val: int, test: int, kind: str) -> None:
    """Raise ValueError where no training images remain, or where `val` or `test` divides a neighbourhood."""
    if val + test >= images:
        raise ValueError(f"val {val} and test {test} leave no training images of {images}: increase images")
    if val % NEIGHBOURS or test % NEIGHBOURS:
        raise ValueError(
            f"val {val} or test {test} would divide a neighbourhood of {NEIGHBOURS} {kind}: "
            f"choose multiples of {NEIGHBOURS}"
        )


class DrawScenes(Section):
    """Settings of drawn scenes: number of images, side in pixels, and sizes of val and test."""

    images: Images
    size: Annotated[int, Field(ge=32, le=1024)]
    val: Count
    test: Count

    def _check(self) -> None:
        _check_splits(self.images, self.val, self.test, "scenes")


class DrawFilms(Section):
    """Settings of drawn films: number of films, side in pixels, frames per film, and sizes of val and test."""

    images: Images
    size: Annotated[int, Field(ge=32, le=1024)]
    frames: Annotated[int, Field(ge=4, le=100)]
    val: Count
    test: Count

    def _check(self) -> None:
        _check_splits(self.images, self.val, self.test, "films")
