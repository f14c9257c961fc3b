"""What is behind the objects: the sky with sun, moon and clouds, and bare ground to draw a landscape on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from pipeline.scenes.drawing.pen import Colour, Point, mix, points
from pipeline.scenes.facts import Scene, atmosphere

SKY: dict[str, tuple[Colour, Colour, Colour]] = {  # above, between, at the horizon
    "sunny": ((74, 156, 236), (138, 198, 246), (214, 238, 250)),
    "cloudy": ((146, 158, 174), (178, 188, 200), (210, 216, 222)),
    "rainy": ((98, 110, 130), (126, 138, 156), (160, 170, 184)),
    "sunset": ((92, 82, 158), (232, 122, 122), (255, 198, 112)),
    "night": ((18, 24, 66), (34, 44, 102), (66, 78, 140)),
}
AIR: dict[str, tuple[Colour, float]] = {  # the colour of the light, and its share in the colours of the ground
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
    """A square picture, `side` pixels wide, with sky and ground; positions are fractions of it, y downwards."""

    def __init__(self, scene: Scene, side: int, rng: np.random.Generator) -> None:
        self.scene, self.side, self.rng = scene, side, rng
        self.air = atmosphere(scene)
        self.picture = Image.new("RGB", (side, side))
        self._draw = ImageDraw.Draw(self.picture)
        self.gradient(0.0, scene.horizon + 0.01, SKY[self.air])
        self._lights()
        self._clouds()
        far, near = GROUND[scene.setting]
        self.gradient(scene.shore, 1.0, (self.tone(far), self.tone(near)))

    def tone(self, colour: Colour) -> Colour:
        """`colour` in this light."""
        other, share = AIR[self.air]
        return mix(colour, other, share)

    def gradient(self, top: float, bottom: float, colours: tuple[Colour, ...]) -> None:
        y0, y1 = round(top * self.side), round(bottom * self.side)
        strip = _strip(colours, y1 - y0)
        self.picture.paste(strip.resize((self.side, y1 - y0), Image.Resampling.NEAREST), (0, y0))

    def ellipse(self, x: float, y: float, rx: float, ry: float, fill: Colour) -> None:
        s = self.side
        self._draw.ellipse([(x - rx) * s, (y - ry) * s, (x + rx) * s, (y + ry) * s], fill=fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: Colour) -> None:
        s = self.side
        self._draw.rectangle([x0 * s, y0 * s, x1 * s, y1 * s], fill=fill)

    def polygon(self, points: list[Point], fill: Colour) -> None:
        self._draw.polygon([(x * self.side, y * self.side) for x, y in points], fill=fill)

    def line(self, points: list[Point], width: float, fill: Colour) -> None:
        self._draw.line([(x * self.side, y * self.side) for x, y in points], fill, max(1, round(width * self.side)))

    def hills(self, base: float, height: float, waves: float, fill: Colour) -> None:
        """A rolling line across the picture, filled down to `base`."""
        phase = self.rng.random(2) * 6.28
        x = np.linspace(0, 1, 25)
        rise = 0.62 + 0.25 * np.sin(waves * x * 6.28 + phase[0]) + 0.13 * np.sin(2.3 * waves * x * 6.28 + phase[1])
        self.polygon([(0.0, base), *curve(x, base - height * rise), (1.0, base)], fill)

    def glow(self, x: float, y: float, radius: float, colour: Colour) -> None:
        pixels = round(2 * radius * self.side)
        mask = _glow(pixels)
        self.picture.paste(colour, (round(x * self.side) - pixels // 2, round(y * self.side) - pixels // 2), mask)

    def spots(self, number: int, top: float) -> list[Point]:
        """Random places on the ground below `top`."""
        return [(float(x), float(top + (0.99 - top) * y)) for x, y in self.rng.random((number, 2))]

    def _lights(self) -> None:
        boxes = [box for thing in self.scene.things for box in thing.boxes]
        spots = [(float(x), 0.11) for x in self.rng.uniform(0.1, 0.9, 5)]
        x, y = min(spots, key=lambda p: sum(b[0] - 0.08 < p[0] < b[2] + 0.08 and b[1] < 0.2 for b in boxes))
        if self.air == "sunny":
            self.glow(x, y, 0.18, (255, 246, 200))
            self.ellipse(x, y, 0.058, 0.058, (255, 232, 112))
        elif self.air == "sunset":
            y = self.scene.horizon - 0.05
            self.glow(x, y, 0.32, (255, 226, 150))
            self.ellipse(x, y, 0.085, 0.085, (255, 232, 150))
        elif self.air == "night":
            for sx, sy in self.rng.random((36, 2)):
                self.ellipse(sx, sy * self.scene.horizon * 0.94, 0.0045, 0.0045, (226, 228, 214))
            self.glow(x, y, 0.16, (150, 160, 214))
            self.ellipse(x, y, 0.055, 0.055, (246, 242, 216))
            for dx, dy, r in ((-0.018, -0.012, 0.012), (0.016, 0.014, 0.015), (0.014, -0.024, 0.008)):
                self.ellipse(x + dx, y + dy, r, r, (224, 218, 190))

    def _clouds(self) -> None:
        number = {"cloudy": 6, "rainy": 7, "sunny": int(self.rng.integers(0, 3)), "sunset": 3}.get(self.air, 0)
        for _ in range(number):
            x, y = self.rng.uniform(-0.05, 1.0), self.rng.uniform(0.06, self.scene.horizon - 0.2)
            if self.air == "sunset":
                w = self.rng.uniform(0.12, 0.24)
                self.ellipse(x, y + 0.06, w, 0.012, (250, 160, 140))
                self.ellipse(x + 0.07, y + 0.078, w * 0.7, 0.010, (252, 178, 140))
                continue
            top, under = {
                "sunny": ((255, 255, 255), (232, 242, 250)),
                "cloudy": ((232, 236, 240), (198, 206, 216)),
                "rainy": ((136, 146, 162), (104, 114, 132)),
            }[self.air]
            k = self.rng.uniform(0.8, 1.3)
            for colour, dy in ((under, 0.014), (top, 0.0)):
                for dx, up, r in points("-0.09,0,0.034 -0.035,0.022,0.048 0.03,0.014,0.044 0.085,0,0.032"):
                    self.ellipse(x + dx * k, y - up * k + dy, r * 1.15 * k, r * 0.9 * k, colour)


def curve(x: np.ndarray, y: np.ndarray) -> list[Point]:
    """The points (x, y) of a curve."""
    return list(zip(x.tolist(), y.tolist(), strict=True))


@lru_cache(maxsize=1024)
def _strip(colours: tuple[Colour, ...], height: int) -> Image.Image:
    """One column of a vertical gradient through `colours`."""
    stops = np.linspace(0, 1, len(colours))
    t = np.linspace(0, 1, height)
    bands = [np.interp(t, stops, band) for band in zip(*colours, strict=True)]
    return Image.fromarray(np.round(np.stack(bands, -1)).astype(np.uint8)[:, None])


@lru_cache(maxsize=64)
def _glow(pixels: int) -> Image.Image:
    """A soft round mask."""
    axis = np.linspace(-1, 1, pixels)
    r = np.hypot(axis[:, None], axis[None])
    return Image.fromarray(np.round(220 * np.clip(1 - r, 0, 1) ** 1.8).astype(np.uint8))
