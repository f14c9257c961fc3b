"""The manifest of a set of features: types and ranges of every entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field, model_validator

from pipeline.ranges import Channels, Count, Natural, Pixels, Share
from pipeline.runtime.records import Digest, Line, Record

MAX_PIXELS = 2**24  # side² times frames of a network's input
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]  # name of a file in the folder
Deviation = Annotated[list[Annotated[float, Ge(1e-4)]], Field(min_length=3, max_length=3)]
Regions = Annotated[int, Ge(1), Le(1000)]


class WeightsSource(Record):
    """The source of weights, and their digest."""

    source: Line | None = None
    file: Line | None = None
    sha256: Digest


class FittedFile(Record):
    """A file of values fitted to the training split, and its digest."""

    file: Name
    sha256: Digest
    explained: Annotated[float, Ge(-0.01), Le(1.01)] | None = None


class BoxLimits(Record):
    """The limits of a detector's number of regions."""

    fixed: Regions | None = None
    min_boxes: Regions | None = None
    max_boxes: Regions | None = None
    threshold: Share | None = None

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        is_set = [value is not None for value in (self.fixed, self.min_boxes, self.max_boxes, self.threshold)]
        if is_set not in ([True, False, False, False], [False, True, True, True]):
            raise ValueError("must have fixed, or min_boxes, max_boxes and threshold")
        return self


class Preprocessing(Record):
    """The preprocessing of images; at least one of input_size, size and shortest is required."""

    input_size: Annotated[list[Pixels], Field(min_length=3, max_length=3)] | None = None
    size: Pixels | Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None = None
    shortest: Pixels | None = None
    longest: Annotated[int, Ge(1), Le(4096)] | None = None
    interpolation: Line | Natural = "bicubic"
    resize_mode: Line | None = None
    mean: Channels | None = None
    std: Deviation | None = None

    @property
    def side(self) -> int:
        """Return the side of the network's square input, or the shorter side of its input, in pixels."""
        size = self.input_size or self.size or self.shortest
        assert size is not None
        return size[-1] if isinstance(size, list) else size

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.input_size is None and self.size is None and self.shortest is None:
            raise ValueError("must have input_size, size or shortest")
        return self


class Shape(Record):
    """The shape of the store: M rows (mirror images too), vector size P, at most R regions per image, region size D."""

    M: Annotated[int, Ge(0)]
    P: Count
    R: Count
    D: Count


class Manifest(Record):
    """A network with its preprocessing and fitted values.

    Manifests of features that were imported or computed from facts have other entries.
    """

    network: Line
    preprocessing: Preprocessing
    weights: WeightsSource
    options: Mapping[str, Any] = Field(default_factory=dict)
    boxes: BoxLimits | None = None
    cells: Annotated[int, Ge(1), Le(64)] | None = None
    project: Count | None = None
    vector: Literal["mean_and_max", "times"] | None = None
    frames: Annotated[int, Ge(1), Le(64)] | None = None
    rate: Annotated[float, Gt(0), Le(1000)] | None = None
    mirrored: bool = False
    detector: Mapping[str, Any] | None = None
    projection: FittedFile | None = None
    scale: FittedFile | None = None
    texture: FittedFile | None = None
    crc: Annotated[int, Ge(0), Lt(2**32)] | None = None
    shape: Shape | None = None

    @model_validator(mode="after")
    def _check_pixels(self) -> Self:
        if (self.frames or 1) * self.preprocessing.side**2 > MAX_PIXELS:
            raise ValueError(
                f"must have at most {MAX_PIXELS:,} pixels in all frames, found {self.frames or 1} frames of "
                f"{self.preprocessing.side}² pixels"
            )
        return self
