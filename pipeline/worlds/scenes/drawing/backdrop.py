"""Backdrops of scenes: the sky, the ground, and the landmarks that the facts name for each setting."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from pipeline.worlds.scenes.drawing.pen import Colour, Point, mix, parse_points
from pipeline.worlds.scenes.scene_facts import Scene, name_atmosphere, pick

SKY: dict[str, tuple[Colour, Colour, Colour]] = {  # top, middle, horizon
    "sunny": ((74, 156, 236), (138, 198, 246), (214, 238, 250)),
    "cloudy": ((146, 158, 174), (178, 188, 200), (210, 216, 222)),
    "rainy": ((98, 110, 130), (126, 138, 156), (160, 170, 184)),
    "sunset": ((92, 82, 158), (232, 122, 122), (255, 198, 112)),
    "night": ((18, 24, 66), (34, 44, 102), (66, 78, 140)),
}
LIGHT: dict[str, tuple[Colour, float]] = {  # colour of the light, and its share in the colours of ground and landmarks
    "sunny": ((255, 250, 230), 0.0),
    "cloudy": ((150, 160, 172), 0.18),
    "rainy": ((104, 118, 138), 0.34),
    "sunset": ((236, 122, 92), 0.26),
    "night": ((26, 34, 92), 0.56),
}
GROUND: dict[str, tuple[Colour, Colour]] = {  # far, near
    "beach": ((244, 226, 178), (232, 204, 146)),
    "park": ((158, 206, 108), (112, 178, 82)),
    "street": ((138, 142, 150), (112, 116, 126)),
    "snow": ((246, 250, 255), (216, 228, 244)),
    "desert": ((238, 198, 134), (224, 172, 104)),
    "lake": ((162, 202, 112), (120, 176, 88)),
    "farm": ((204, 204, 112), (176, 184, 88)),
}


class Backdrop:
    """Square image, `side` pixels wide, with sky and ground; positions are fractions of `side`, y downwards."""

    def __init__(self, scene: Scene, side: int, rng: np.random.Generator) -> None:
        self.scene, self.side, self.rng = scene, side, rng
        self.atmosphere = name_atmosphere(scene)
        self.picture = Image.new("RGB", (side, side))
        self._draw = ImageDraw.Draw(self.picture)
        self.gradient(0.0, scene.horizon + 0.01, SKY[self.atmosphere])
        self._draw_lights()
        self._draw_clouds()
        far, near = GROUND[scene.setting]
        self.gradient(scene.shore, 1.0, (self.tone(far), self.tone(near)))

    def tone(self, colour: Colour) -> Colour:
        """Return `colour` in the scene's light."""
        light, share = LIGHT[self.atmosphere]
        return mix(colour, light, share)

    def gradient(self, top: float, bottom: float, colours: tuple[Colour, ...]) -> None:
        """Fill the rows from `top` to `bottom` with a vertical gradient through `colours`."""
        y0, y1 = round(top * self.side), round(bottom * self.side)
        strip = _make_strip(colours, y1 - y0)
        self.picture.paste(strip.resize((self.side, y1 - y0), Image.Resampling.NEAREST), (0, y0))

    def ellipse(self, x: float, y: float, rx: float, ry: float, fill: Colour) -> None:
        """Draw an ellipse with the centre (x, y) and the radii (rx, ry)."""
        s = self.side
        self._draw.ellipse([(x - rx) * s, (y - ry) * s, (x + rx) * s, (y + ry) * s], fill=fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: Colour) -> None:
        """Draw a rectangle between two corners."""
        s = self.side
        self._draw.rectangle([x0 * s, y0 * s, x1 * s, y1 * s], fill=fill)

    def polygon(self, points: list[Point], fill: Colour) -> None:
        """Draw a filled polygon."""
        self._draw.polygon([(x * self.side, y * self.side) for x, y in points], fill=fill)

    def line(self, points: list[Point], width: float, fill: Colour) -> None:
        """Draw a line through `points`."""
        self._draw.line([(x * self.side, y * self.side) for x, y in points], fill, max(1, round(width * self.side)))

    def hills(self, base: float, height: float, waves: float, fill: Colour) -> None:
        """Draw hills across the image, filled down to `base`."""
        phase = self.rng.random(2) * 6.28
        x = np.linspace(0, 1, 25)
        rise = 0.62 + 0.25 * np.sin(waves * x * 6.28 + phase[0]) + 0.13 * np.sin(2.3 * waves * x * 6.28 + phase[1])
        self.polygon([(0.0, base), *make_curve(x, base - height * rise), (1.0, base)], fill)

    def glow(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Paste a soft round light."""
        pixels = round(2 * radius * self.side)
        mask = _make_glow(pixels)
        self.picture.paste(colour, (round(x * self.side) - pixels // 2, round(y * self.side) - pixels // 2), mask)

    def spots(self, number: int, top: float) -> list[Point]:
        """Return random points on the ground below `top`."""
        return [(float(x), float(top + (0.99 - top) * y)) for x, y in self.rng.random((number, 2))]

    def _draw_lights(self) -> None:
        boxes = [box for thing in self.scene.things for box in thing.boxes]
        spots = [(float(x), 0.11) for x in self.rng.uniform(0.1, 0.9, 5)]
        x, y = min(spots, key=lambda p: sum(b[0] - 0.08 < p[0] < b[2] + 0.08 and b[1] < 0.2 for b in boxes))
        if self.atmosphere == "sunny":
            self.glow(x, y, 0.18, (255, 246, 200))
            self.ellipse(x, y, 0.058, 0.058, (255, 232, 112))
        elif self.atmosphere == "sunset":
            y = self.scene.horizon - 0.05
            self.glow(x, y, 0.32, (255, 226, 150))
            self.ellipse(x, y, 0.085, 0.085, (255, 232, 150))
        elif self.atmosphere == "night":
            for sx, sy in self.rng.random((36, 2)):
                self.ellipse(sx, sy * self.scene.horizon * 0.94, 0.0045, 0.0045, (226, 228, 214))
            self.glow(x, y, 0.16, (150, 160, 214))
            self.ellipse(x, y, 0.055, 0.055, (246, 242, 216))
            for dx, dy, r in ((-0.018, -0.012, 0.012), (0.016, 0.014, 0.015), (0.014, -0.024, 0.008)):
                self.ellipse(x + dx, y + dy, r, r, (224, 218, 190))

    def _draw_clouds(self) -> None:
        number = {"cloudy": 6, "rainy": 7, "sunny": int(self.rng.integers(0, 3)), "sunset": 3}.get(self.atmosphere, 0)
        for _ in range(number):
            x, y = self.rng.uniform(-0.05, 1.0), self.rng.uniform(0.06, self.scene.horizon - 0.2)
            if self.atmosphere == "sunset":
                w = self.rng.uniform(0.12, 0.24)
                self.ellipse(x, y + 0.06, w, 0.012, (250, 160, 140))
                self.ellipse(x + 0.07, y + 0.078, w * 0.7, 0.010, (252, 178, 140))
                continue
            top, shade = {
                "sunny": ((255, 255, 255), (232, 242, 250)),
                "cloudy": ((232, 236, 240), (198, 206, 216)),
                "rainy": ((136, 146, 162), (104, 114, 132)),
            }[self.atmosphere]
            k = self.rng.uniform(0.8, 1.3)
            for colour, dy in ((shade, 0.014), (top, 0.0)):
                for dx, rise, r in parse_points("-0.09,0,0.034 -0.035,0.022,0.048 0.03,0.014,0.044 0.085,0,0.032"):
                    self.ellipse(x + dx * k, y - rise * k + dy, r * 1.15 * k, r * 0.9 * k, colour)


def make_curve(x: np.ndarray, y: np.ndarray) -> list[Point]:
    """Return the points (x, y) of a curve."""
    return list(zip(x.tolist(), y.tolist(), strict=True))


@lru_cache(maxsize=1024)
def _make_strip(colours: tuple[Colour, ...], height: int) -> Image.Image:
    """Return one column of a vertical gradient through `colours`."""
    stops = np.linspace(0, 1, len(colours))
    t = np.linspace(0, 1, height)
    bands = [np.interp(t, stops, band) for band in zip(*colours, strict=True)]
    return Image.fromarray(np.round(np.stack(bands, -1)).astype(np.uint8)[:, None])


@lru_cache(maxsize=64)
def _make_glow(pixels: int) -> Image.Image:
    """Return a soft round mask."""
    axis = np.linspace(-1, 1, pixels)
    r = np.hypot(axis[:, None], axis[None])
    return Image.fromarray(np.round(220 * np.clip(1 - r, 0, 1) ** 1.8).astype(np.uint8))


def draw_beach(b: Backdrop, horizon: float, shore: float) -> None:
    """Draw the sea with its waves between `horizon` and `shore`, the surf, and spots on the sand below."""
    b.gradient(horizon, shore + 0.02, (b.tone((58, 138, 196)), b.tone((110, 196, 214))))
    for x, y in b.rng.random((10, 2)):
        y, w = horizon + 0.01 + y * (shore - horizon - 0.02), b.rng.uniform(0.03, 0.07)
        b.line([(x - w, y), (x + w, y)], 0.006, b.tone((150, 214, 232)))
    phase = b.rng.random() * 6.28
    for depth, colour in ((0.030, (214, 188, 134)), (0.016, (250, 252, 252)), (0.0, (110, 196, 214))):
        x = np.linspace(0, 1, 30)
        y = shore + depth + 0.010 * np.sin(12 * x + phase) + 0.004 * np.sin(29 * x)
        b.polygon([(0.0, shore - 0.006), *make_curve(x, y), (1.0, shore - 0.006)], b.tone(colour))
    for x, y in b.spots(26, shore + 0.06):
        b.ellipse(x, y, 0.006, 0.003, b.tone((214, 184, 126)))


def _draw_tree(b: Backdrop, x: float, y: float, h: float) -> None:
    b.box(x - h * 0.06, y - h * 0.4, x + h * 0.06, y, b.tone((116, 82, 58)))
    dark, middle, light = (66, 134, 74), (74, 146, 80), (104, 172, 98)
    crown = ((-0.22, 0.62, 0.26, dark), (0.22, 0.60, 0.26, dark), (0.0, 0.78, 0.30, middle), (-0.06, 0.86, 0.17, light))
    for dx, dy, r, colour in crown:
        b.ellipse(x + dx * h, y - dy * h, r * h, r * h * 0.92, b.tone(colour))


def _draw_grass(b: Backdrop, shore: float, number: int, flowers: int) -> None:
    blade = b.tone((84, 150, 70))
    for x, y in b.spots(number, shore + 0.05):
        b.line([(x - 0.008, y - 0.018), (x, y), (x + 0.008, y - 0.02)], 0.006, blade)
    for x, y in b.spots(flowers, shore + 0.06):
        b.ellipse(x, y, 0.008, 0.008, b.tone(pick(b.rng, ((252, 250, 240), (250, 224, 110), (244, 176, 196)))))


def draw_park(b: Backdrop, horizon: float, shore: float) -> None:
    """Draw hills, trees and grass."""
    b.hills(horizon + 0.02, 0.10, 0.9, b.tone((134, 190, 138)))
    b.hills(horizon + 0.02, 0.05, 1.6, b.tone((120, 182, 104)))
    x = b.rng.uniform(-0.02, 0.06)
    while x < 1.02:
        h = b.rng.uniform(0.16, 0.28)
        _draw_tree(b, x, horizon + 0.03 + b.rng.uniform(0, 0.015), h)
        x += h * b.rng.uniform(0.8, 1.7)
    _draw_grass(b, horizon, 26, 12)


def draw_street(b: Backdrop, horizon: float, shore: float) -> None:
    """Draw houses behind a pavement and a road."""
    x = -0.03
    while x < 1.0:
        w, h = b.rng.uniform(0.15, 0.25), b.rng.uniform(0.18, 0.38)
        wall = pick(b.rng, ((192, 142, 122), (154, 166, 190), (216, 196, 160), (168, 156, 178), (176, 186, 176)))
        b.box(x, horizon - h, x + w, horizon + 0.02, b.tone(wall))
        b.box(x - 0.006, horizon - h - 0.014, x + w + 0.006, horizon - h + 0.006, b.tone(mix(wall, (40, 40, 60), 0.3)))
        b.box(x + w - 0.022, horizon - h + 0.006, x + w, horizon + 0.02, b.tone(mix(wall, (40, 40, 60), 0.15)))
        is_dark = b.atmosphere in ("night", "sunset")
        columns = 3 if w > 0.19 else 2
        for row in range(int(h / 0.068)):
            for column in range(columns):
                wx = x + (column + 0.5) * (w - 0.022) / columns
                wy = horizon - h + 0.045 + row * 0.068
                has_light = b.rng.random() < 0.7
                day_colour = b.tone((196, 220, 236) if has_light else (120, 140, 164))
                glass = (255, 222, 128) if is_dark and has_light else day_colour
                b.box(wx - 0.014, wy - 0.018, wx + 0.014, wy + 0.018, glass)
        x += w + 0.008
    b.box(0, horizon + 0.01, 1, horizon + 0.075, b.tone((196, 194, 190)))
    b.box(0, horizon + 0.075, 1, horizon + 0.088, b.tone((160, 160, 162)))
    offset = b.rng.uniform(0, 0.2)
    for k in range(-1, 6):
        b.box(k * 0.2 + offset, 0.77, k * 0.2 + offset + 0.11, 0.787, b.tone((244, 238, 214)))


def _draw_pine(b: Backdrop, x: float, y: float, h: float, colour: Colour, snow: bool) -> None:
    b.box(x - h * 0.05, y - h * 0.2, x + h * 0.05, y, b.tone((104, 76, 58)))
    for low, half_width, high in ((0.12, 0.30, 0.58), (0.38, 0.24, 0.80), (0.62, 0.17, 1.0)):
        w, foot = half_width * h, y - low * h
        b.polygon([(x - w, foot), (x, y - high * h), (x + w, foot)], b.tone(colour))
        if snow:
            tip = [(x - w * 0.42, y - (high - (high - low) * 0.42) * h), (x, y - high * h)]
            b.polygon([*tip, (x + w * 0.42, tip[0][1])], b.tone((244, 248, 253)))


def draw_snow(b: Backdrop, horizon: float, shore: float) -> None:
    """Draw mountains, hills, pines and snowdrifts."""
    for x in (b.rng.uniform(0.0, 0.25), b.rng.uniform(0.75, 1.0), b.rng.uniform(0.38, 0.62)):
        h, w = b.rng.uniform(0.22, 0.34), b.rng.uniform(0.26, 0.38)
        peak, foot = horizon - h, horizon + 0.02
        b.polygon([(x - w, foot), (x, peak), (x + w, foot)], b.tone((150, 166, 194)))
        b.polygon([(x, peak), (x + w, foot), (x + w * 0.1, foot), (x - 0.03, peak + h * 0.5)], b.tone((124, 140, 172)))
        cap = parse_points("-0.42,0.42 0,0 0.42,0.42 0.2,0.33 0.06,0.47 -0.14,0.34")
        b.polygon([(x + w * dx, peak + h * dy) for dx, dy in cap], b.tone((250, 252, 255)))
    b.hills(horizon + 0.03, 0.05, 0.8, b.tone((246, 250, 255)))
    for x in b.rng.uniform(0.0, 1.0, 4):
        _draw_pine(b, x, horizon + 0.045, b.rng.uniform(0.10, 0.17), (72, 124, 108), True)
    for x, y in b.spots(8, horizon + 0.12):
        b.ellipse(x, y, b.rng.uniform(0.03, 0.08), 0.007, b.tone((204, 218, 238)))


def draw_desert(b: Backdrop, horizon: float, shore: float) -> None:
    """Draw dunes, and a cactus if the scene has one."""
    b.hills(horizon + 0.02, 0.13, 0.7, b.tone((216, 158, 124)))
    b.hills(horizon + 0.03, 0.07, 1.1, b.tone((230, 182, 124)))
    for y in (0.60, 0.74, 0.88):
        xs = np.linspace(0, 1, 14)
        ridge = y + 0.012 * np.sin(9 * xs + b.rng.random() * 6)
        b.line(make_curve(xs, ridge), 0.006, b.tone((212, 160, 98)))
    for x, y in b.spots(10, horizon + 0.08):
        b.ellipse(x, y, 0.009, 0.005, b.tone((190, 140, 92)))
    if "cactus" in b.scene.scenery:
        x, foot, green = b.scene.scenery["cactus"], horizon + 0.06, b.tone((72, 142, 86))
        light = b.tone((112, 174, 112))
        for side, low, high in ((-1, 0.10, 0.19), (1, 0.13, 0.225)):
            b.line([(x, foot - low), (x + side * 0.068, foot - low)], 0.032, green)
            b.line([(x + side * 0.068, foot - low), (x + side * 0.068, foot - high)], 0.034, green)
            b.ellipse(x + side * 0.068, foot - low, 0.017, 0.017, green)
            b.ellipse(x + side * 0.068, foot - high, 0.017, 0.017, green)
        b.line([(x, foot), (x, foot - 0.27)], 0.050, green)
        b.ellipse(x, foot - 0.27, 0.025, 0.025, green)
        b.line([(x - 0.008, foot - 0.02), (x - 0.008, foot - 0.26)], 0.007, light)


def draw_lake(b: Backdrop, horizon: float, shore: float) -> None:
    """Draw hills, pines, water and a grassy shore."""
    b.hills(horizon + 0.02, 0.17, 0.8, b.tone((128, 164, 168)))
    x = -0.03
    while x < 1.03:
        h = b.rng.uniform(0.10, 0.17)
        _draw_pine(b, x, horizon + 0.012, h, (62, 118, 96) if b.rng.random() < 0.6 else (78, 136, 106), False)
        x += h * b.rng.uniform(0.38, 0.6)
    b.gradient(horizon, shore, (b.tone((96, 160, 190)), b.tone((130, 196, 220))))
    for x, y in b.rng.random((12, 2)):
        y, w = horizon + 0.012 + y * (shore - horizon - 0.025), b.rng.uniform(0.03, 0.08)
        b.line([(x - w, y), (x + w, y)], 0.006, b.tone((176, 222, 236)))
    b.line([(0, shore), (1, shore)], 0.014, b.tone((206, 194, 148)))
    _draw_grass(b, shore, 18, 6)


def draw_farm(b: Backdrop, horizon: float, shore: float) -> None:
    """Draw fields, a fence, and a barn if the scene has one."""
    b.hills(horizon + 0.02, 0.12, 0.7, b.tone((156, 196, 126)))
    b.hills(horizon + 0.02, 0.06, 1.0, b.tone((212, 208, 124)))
    for k in range(-7, 8):
        b.line([(0.5 + k * 0.07, horizon + 0.03), (0.5 + k * 0.26, 1.0)], 0.008, b.tone((162, 168, 78)))
    if "barn" in b.scene.scenery:
        x, y, red = b.scene.scenery["barn"], horizon + 0.03, b.tone((178, 70, 62))
        white = b.tone((246, 238, 228))
        gable = [(x + dx, y + dy) for dx, dy in parse_points("-0.12,-0.13 -0.09,-0.2 0,-0.245 0.09,-0.2 0.12,-0.13")]
        b.polygon([(x - 0.11, y), *gable, (x + 0.11, y)], red)
        b.line(gable, 0.020, b.tone((104, 72, 72)))
        b.box(x - 0.045, y - 0.105, x + 0.045, y, white)
        b.box(x - 0.036, y - 0.096, x + 0.036, y, red)
        for side in (-0.036, 0.036):
            b.line([(x + side, y - 0.096), (x - side, y)], 0.009, white)
        b.ellipse(x, y - 0.165, 0.02, 0.02, white)
    rail, post = b.tone((196, 154, 110)), b.tone((164, 120, 82))
    for y in (0.035, 0.085):
        b.box(0, horizon + y, 1, horizon + y + 0.018, rail)
    for k in range(8):
        b.box(0.03 + k * 0.135, horizon + 0.005, 0.055 + k * 0.135, horizon + 0.135, post)
    _draw_grass(b, horizon + 0.1, 14, 4)


LANDSCAPES: dict[str, Callable[[Backdrop, float, float], None]] = {
    "beach": draw_beach,
    "park": draw_park,
    "street": draw_street,
    "snow": draw_snow,
    "desert": draw_desert,
    "lake": draw_lake,
    "farm": draw_farm,
}  # by setting: called with the backdrop, horizon and shore
