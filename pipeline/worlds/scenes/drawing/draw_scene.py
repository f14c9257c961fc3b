"""Drawing of a scene: its backdrop, then its objects from back to front, each inside its box."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from PIL import Image, ImageDraw

from pipeline.worlds.scenes.drawing import animals, people, things
from pipeline.worlds.scenes.drawing.backdrop import LANDSCAPES, Backdrop
from pipeline.worlds.scenes.drawing.pen import INK, PAD, Pen, mix
from pipeline.worlds.scenes.scene_facts import Box, Scene, Thing, make_generator, name_atmosphere
from pipeline.worlds.scenes.scene_world import CATEGORIES, PALETTE

SUPERSAMPLING = 2
ANIMALS = (
    animals.draw_dog,
    animals.draw_cat,
    animals.draw_horse,
    animals.draw_cow,
    animals.draw_sheep,
    animals.draw_bird,
)
VEHICLES = (things.draw_car, things.draw_bus, things.draw_truck, things.draw_bicycle, things.draw_boat)
OTHERS = (
    things.draw_house,
    things.draw_tent,
    things.draw_umbrella,
    things.draw_kite,
    things.draw_balloon,
    things.draw_bench,
    things.draw_ball,
)
DRAWINGS: dict[str, Callable[[Pen, str], None]] = {
    drawing.__name__.removeprefix("draw_"): drawing for drawing in (*ANIMALS, *VEHICLES, *OTHERS)
}  # by category, except people: called with the pen and the pose
REFLECTION_OPACITY = [v * 2 // 5 for v in range(256)]  # lookup table of the opacity of reflections
TINT: dict[str, tuple[float, float, float]] = {  # factors of an object's red, green and blue
    "cloudy": (0.97, 0.98, 0.99),
    "rainy": (0.91, 0.93, 0.96),
    "sunset": (1.0, 0.93, 0.88),
    "night": (0.84, 0.86, 0.95),
}


def draw_scene(scene: Scene, seed: int, index: int, size: int) -> Image.Image:
    """Return the image of `scene`, (size, size) RGB.

    The random generator of (seed, index) draws the details that no fact fixes (clouds, faces).
    """
    rng = make_generator(seed, index, 1)
    side = size * SUPERSAMPLING
    picture = draw_backdrop(scene, side, rng)
    atmosphere = name_atmosphere(scene)
    objects = [(box, thing) for thing in scene.things for box in thing.boxes]
    for box, thing in sorted(objects, key=lambda item: item[0][3]):
        layer = draw_object(thing, (box[3] - box[1]) * side, atmosphere, rng)
        paste_object(picture, layer, thing, box, atmosphere)
    if atmosphere == "rainy":
        draw_rain(picture, rng)
    return picture.reduce(SUPERSAMPLING)


def draw_backdrop(scene: Scene, side: int, rng: np.random.Generator) -> Image.Image:
    """Return sky, ground and landmarks, (side, side) RGB."""
    backdrop = Backdrop(scene, side, rng)
    LANDSCAPES[scene.setting](backdrop, scene.horizon, scene.shore)
    return backdrop.picture


def draw_object(thing: Thing, height: float, atmosphere: str, rng: np.random.Generator) -> Image.Image:
    """Return one object, `height` pixels high, on a transparent layer with a margin of PAD pixels."""
    extent = CATEGORIES[thing.category].poses[thing.pose]
    pen = Pen(extent, height / extent[2], thing.colour, glow=atmosphere == "night")
    if thing.category in DRAWINGS:
        DRAWINGS[thing.category](pen, thing.pose)
    else:
        people.draw_person(pen, thing.category, thing.pose, rng)
    layer = pen.finish(thing.pattern, slant=thing.category not in ("balloon", "bus", "truck", "house"))
    if atmosphere in TINT:
        layer = layer.point(_make_light_table(atmosphere))
    return layer if thing.facing == "right" else layer.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def paste_object(picture: Image.Image, layer: Image.Image, thing: Thing, box: Box, atmosphere: str) -> None:
    """Paste an object with an outline at `box`, with a shadow on the ground or a reflection on water."""
    side = picture.width
    x, y = round(box[0] * side) - PAD, round(box[1] * side) - PAD
    foot = round(box[3] * side)
    if thing.place == "ground":
        share = 0.94  # width of the shadow in widths of the drawing; less for a narrow foot or a jump
        if thing.category in ("umbrella", "ball"):
            share = 0.62
        elif thing.pose == "jumping":
            share = 0.8
        w = max(4, round((layer.width - 2 * PAD) * share))
        h = max(3, round(w * 0.15))
        shadow = _make_shadow().resize((w, h), Image.Resampling.BILINEAR)
        picture.paste((20, 22, 44), (x + (layer.width - w) // 2, foot - round(h * 0.58)), shadow)
    elif thing.place == "water":
        reflection = layer.transpose(Image.Transpose.FLIP_TOP_BOTTOM).resize((layer.width, layer.height // 3))
        opacity = reflection.getchannel("A").point(REFLECTION_OPACITY)
        picture.paste(reflection.convert("RGB"), (x, foot - 3), opacity)
    alpha = layer.getchannel("A")
    if atmosphere == "night":
        rim = mix(PALETTE[thing.colour], (168, 182, 236), 0.8 if sum(PALETTE[thing.colour]) < 240 else 0.4)
    else:
        rim = mix(mix(PALETTE[thing.colour], INK, 0.62), (255, 255, 255), 0.0 if thing.colour != "black" else 0.35)
    rim_width = max(1, round(side / 230))
    for dx, dy in ((-rim_width, 0), (rim_width, 0), (0, -rim_width), (0, rim_width)):
        picture.paste(rim, (x + dx, y + dy), alpha)
    picture.paste(layer, (x, y), alpha)


def draw_rain(picture: Image.Image, rng: np.random.Generator) -> None:
    """Draw rain on the whole image."""
    side = picture.width
    draw = ImageDraw.Draw(picture)
    for x, y in rng.random((70, 2)) * side:
        draw.line([x, y, x - 0.016 * side, y + 0.055 * side], fill=(206, 218, 232), width=max(1, round(side / 170)))


@cache
def _make_light_table(atmosphere: str) -> list[int]:
    """Return the lookup table that applies TINT to red, green and blue and keeps the opacity."""
    return [round(v * k) for k in (*TINT[atmosphere], 1.0) for v in range(256)]


@lru_cache(maxsize=1)
def _make_shadow() -> Image.Image:
    """Return the mask of a soft disc."""
    axis = np.linspace(-1, 1, 48)
    r = np.hypot(axis[:, None], axis[None])
    return Image.fromarray(np.round(130 * np.clip(1.15 - r, 0, 0.75) / 0.75).astype(np.uint8))
