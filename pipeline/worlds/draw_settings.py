"""Settings of drawn scenes and films."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline.ranges import Count
from pipeline.section import Section
from pipeline.worlds.scenes.scene_world import NEIGHBOURS


def _divided(images: int, val: int, test: int, what: str) -> None:
    if val + test >= images:
        raise ValueError(f"val {val} and test {test} leave nothing of images {images} to train on")
    if val % NEIGHBOURS or test % NEIGHBOURS:
        raise ValueError(
            f"val {val} or test {test} would divide a neighbourhood of {NEIGHBOURS} {what}: "
            f"choose multiples of {NEIGHBOURS}"
        )


class DrawScenes(Section):
    """Number and size (pixels a side) of the scenes to draw, and the sizes of val and test."""

    images: Count
    size: Annotated[int, Field(ge=32, le=4096)]
    val: Count
    test: Count

    def _check(self) -> None:
        _divided(self.images, self.val, self.test, "scenes")


class DrawFilms(Section):
    """Number and size (pixels a side) of the films to draw, the frames of each, and the sizes of val and test."""

    images: Count
    size: Annotated[int, Field(ge=32, le=4096)]
    frames: Annotated[int, Field(ge=4, le=100)]
    val: Count
    test: Count

    def _check(self) -> None:
        _divided(self.images, self.val, self.test, "films")
