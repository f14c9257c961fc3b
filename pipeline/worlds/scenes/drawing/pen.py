"""Pen that draws one object on a transparent layer, in the object's own units: x to the right, y up from its base."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from pipeline.worlds.scenes.scene_world import PALETTE, Extent

Colour = tuple[int, int, int]
Point = tuple[float, float]
Shape = str | Sequence[tuple[float, ...]]
"""Points in units, as numbers or in SVG's notation "x,y x,y …"."""
INK: Colour = (40, 38, 46)
WHITE: Colour = (250, 250, 246)
PAD = 4  # pixels of margin on each side of a layer


@lru_cache(maxsize=1024)
def mix(a: Colour, b: Colour, share: float) -> Colour:
    """Return `a` moved towards `b` by `share`."""
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


@cache
def parse_points(shape: str) -> tuple[tuple[float, ...], ...]:
    """Parse a shape in SVG's notation into its points."""
    return tuple(tuple(map(float, point.split(","))) for point in shape.split())


@lru_cache(maxsize=512)
def interpolate_spline(knots: tuple[tuple[float, ...], ...], closed: bool) -> tuple[Point, ...]:
    """Return the points of a Catmull-Rom curve through the points `knots`."""
    p = np.array(knots)
    ends = (p[-1:], p[:2]) if closed else (2 * p[:1] - p[1:2], 2 * p[-1:] - p[-2:-1])
    p = np.concatenate([ends[0], p, ends[1]])
    a, b, c, d = (p[i : len(p) - 3 + i, None] for i in range(4))
    t = np.linspace(0, 1, 6, endpoint=False)[None, :, None]
    curve = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
    curve = curve.reshape(-1, 2)
    if not closed:
        curve = np.concatenate([curve, p[-2:-1]])
    return tuple(map(tuple, curve.tolist()))


class Pen:
    """Pen for a layer of `extent` units at `scale` pixels per unit.

    `main` is the object's own colour. With `glow`, the object's windows are lit.
    """

    def __init__(self, extent: Extent, scale: float, colour: str, glow: bool) -> None:
        left, right, top = extent
        self.scale, self._origin = scale, (PAD + left * scale, PAD + top * scale)  # origin in pixels
        size = (round((left + right) * scale) + 2 * PAD, round(top * scale) + 2 * PAD)
        self.layer = Image.new("RGBA", size, (0, 0, 0, 0))
        self.main = PALETTE[colour]
        # almost `main`, so that no pattern covers it; for white it equals `main`, so that patterns do cover it
        self.plain = mix(self.main, (self.main[0], self.main[1], 255), 0.02)
        self.dark = mix(self.main, (16, 14, 40), 0.30 if colour != "black" else 0.5)
        self.deep = mix(self.main, (16, 14, 40), 0.55)
        self.light = mix(self.main, (255, 255, 255), 0.40 if colour != "black" else 0.25)
        self.glass = (255, 226, 130) if glow else (190, 222, 240)
        self._draw = ImageDraw.Draw(self.layer)
        self._x, self._y, self._unit = 0.0, 0.0, 1.0

    def translate(self, x: float, y: float, unit: float = 1.0) -> Pen:
        """Return a pen for the same layer with its origin at (x, y) and units `unit` times as long."""
        pen = copy(self)
        pen._x, pen._y, pen._unit = self._x + x * self._unit, self._y + y * self._unit, self._unit * unit
        return pen

    def ellipse(self, x: float, y: float, rx: float, ry: float, fill: Colour) -> None:
        """Draw an ellipse with the centre (x, y) and the radii (rx, ry)."""
        self._draw.ellipse(self._find_corners(x, y, rx, ry), fill=fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: Colour, radius: float = 0.0) -> None:
        """Draw a box from its lower left to its upper right corner."""
        corners = self._to_pixels(self._to_layer_units([(x0, y1), (x1, y0)]))
        if radius:
            self._draw.rounded_rectangle(corners, radius * self._unit * self.scale, fill=fill)
        else:  # rounded_rectangle rounds boxes of few pixels even with radius 0
            self._draw.rectangle(corners, fill=fill)

    def polygon(self, shape: Shape, fill: Colour) -> None:
        """Draw a filled polygon."""
        self._draw.polygon(self._to_pixels(self._to_layer_units(shape)), fill=fill)

    def blob(self, shape: Shape, fill: Colour) -> None:
        """Draw a smooth closed shape through the points of `shape`."""
        self._draw.polygon(self._to_pixels(interpolate_spline(tuple(self._to_layer_units(shape)), True)), fill=fill)

    def stroke(self, shape: Shape, width: float, fill: Colour, smooth: bool = False) -> None:
        """Draw a line with round ends; with `smooth` the line is a Catmull-Rom curve."""
        layer_points = self._to_layer_units(shape)
        path = self._to_pixels(interpolate_spline(tuple(layer_points), False) if smooth else layer_points)
        pixels = self._to_pixel_width(width)
        self._draw.line(path, fill=fill, width=pixels, joint="curve")
        r = pixels / 2 - 0.5
        for x, y in (path[0], path[-1]) if pixels > 2 else ():
            self._draw.ellipse([x - r, y - r, x + r, y + r], fill=fill)

    def limb(self, joints: Shape, fill: Colour) -> None:
        """Draw a leg or an arm through (x, y, width) joints."""
        joints = parse_points(joints) if isinstance(joints, str) else joints
        for (x0, y0, w0), (x1, y1, w1) in pairwise(joints):
            length = max(1e-6, ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5)
            nx, ny = (y1 - y0) / length / 2, (x0 - x1) / length / 2
            corners = [(x0 + nx * w0, y0 + ny * w0), (x1 + nx * w1, y1 + ny * w1)]
            corners += [(x1 - nx * w1, y1 - ny * w1), (x0 - nx * w0, y0 - ny * w0)]
            self.polygon(corners, fill)
        for x, y, w in joints:
            self.ellipse(x, y, w / 2, w / 2, fill)

    def ring(self, x: float, y: float, r: float, width: float, fill: Colour) -> None:
        """Draw a circle's outline."""
        self._draw.ellipse(self._find_corners(x, y, r, r), outline=fill, width=self._to_pixel_width(width))

    def arc(self, x: float, y: float, r: float, start: float, end: float, width: float, fill: Colour) -> None:
        """Draw part of a circle, clockwise from `start` to `end`, in degrees; 0 is to the right."""
        self._draw.arc(self._find_corners(x, y, r, r), start, end, fill=fill, width=self._to_pixel_width(width))

    def finish(self, pattern: str, slant: bool) -> Image.Image:
        """Return the layer with its pattern on all pixels of the main colour, lit from above."""
        if pattern != "plain":
            self._apply_pattern(pattern, slant)
        *colours, alpha = self.layer.split()
        shade = _make_shade().resize(self.layer.size, Image.Resampling.BILINEAR)
        colours = [ImageChops.multiply(band, shade) for band in colours]
        return Image.merge("RGBA", (*colours, alpha))

    def _to_layer_units(self, shape: Shape) -> Sequence[tuple[float, ...]]:
        """Return the points of a shape in the units of the whole layer."""
        shape = parse_points(shape) if isinstance(shape, str) else shape
        if self._unit == 1.0 and not (self._x or self._y):
            return shape
        return [(self._x + x * self._unit, self._y + y * self._unit) for x, y in shape]

    def _to_pixels(self, layer_points: Sequence[tuple[float, ...]]) -> list[Point]:
        (x0, y0), s = self._origin, self.scale
        return [(x0 + x * s, y0 - y * s) for x, y in layer_points]

    def _find_corners(self, x: float, y: float, rx: float, ry: float) -> list[Point]:
        """Return the corners of the box around an ellipse, in pixels."""
        x, y, rx, ry = self._x + x * self._unit, self._y + y * self._unit, rx * self._unit, ry * self._unit
        return self._to_pixels([(x - rx, y + ry), (x + rx, y - ry)])

    def _to_pixel_width(self, width: float) -> int:
        return max(1, round(width * self._unit * self.scale))

    def _apply_pattern(self, pattern: str, slant: bool) -> None:
        pixels = np.array(self.layer)
        main_mask = pixels.view(np.uint32)[..., 0] == np.frombuffer(bytes((*self.main, 255)), np.uint32)[0]
        rows = np.flatnonzero(main_mask.any(1))
        columns = np.flatnonzero(main_mask.any(0))
        if not len(rows):
            return
        # the pattern scales with the object, but a step has at least 9 pixels, so that small images show the pattern
        extent = max(rows[-1] - rows[0], columns[-1] - columns[0]) + 1
        step = max(9.0, 0.20 * extent)
        y, x = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
        x, y = x - columns[0] + step / 4, y - rows[0] + step / 4
        if pattern == "striped":
            pattern_mask = (x + (0.35 * y if slant else 0)) % step < 0.42 * step
        else:
            shift = np.floor(y / step) % 2 * step / 2
            pattern_mask = ((x + shift) % step - step / 2) ** 2 + (y % step - step / 2) ** 2 < (0.33 * step) ** 2
        is_light = sum(self.main) > 470 or self.main == PALETTE["gray"]
        pixels[main_mask & pattern_mask, :3] = (52, 50, 62) if is_light else (250, 248, 242)
        self.layer = Image.fromarray(pixels)


@lru_cache(maxsize=1)
def _make_shade() -> Image.Image:
    """Return a mask of an object's brightness, which decreases from top to foot and slightly from left to right."""
    y, x = np.mgrid[0:1:16j, 0:1:16j]
    return Image.fromarray(np.round(255 * (1 - 0.15 * y**1.5 - 0.04 * x)).astype(np.uint8))
