"""Drawing of a film's frames: one backdrop, with the actors at each moment."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.worlds.films.film_facts import Film
from pipeline.worlds.films.motion import compute_actor_state, compute_box, compute_frame_times
from pipeline.worlds.scenes.drawing.draw_scene import SUPERSAMPLING, draw_backdrop, draw_object, draw_rain, paste_object
from pipeline.worlds.scenes.scene_facts import make_generator, name_atmosphere
from pipeline.worlds.scenes.scene_world import CATEGORIES

SHADOW_HEIGHT = 0.02  # largest height above the ground at which an actor has a shadow, as a fraction of the image
DURATION = 100  # milliseconds per frame


def draw_film(film: Film, seed: int, frames: int, size: int) -> list[Image.Image]:
    """Return the film's frames, (size, size) RGB.

    Details that no fact fixes (clouds, faces, rain) depend on the seed and the neighbourhood, whose films share them.
    Rain also depends on the frame.
    """
    scene, side = film.scene, size * SUPERSAMPLING
    number, air = scene.neighbourhood, name_atmosphere(scene)
    backdrop = draw_backdrop(replace(scene, things=()), side, make_generator(seed, number, 11))
    draw_layer = lru_cache(partial(_draw_layer, film, seed, side))
    pictures = []
    for frame, time in enumerate(compute_frame_times(frames)):
        picture = backdrop.copy()
        actors = zip(scene.things, film.tracks, film.events, strict=True)
        states = [(i, compute_actor_state(*actor, time)) for i, actor in enumerate(actors)]
        visible = [(i, state) for i, state in states if state is not None]
        for i, state in sorted(visible, key=lambda item: film.tracks[item[0]].base):
            box = compute_box(scene.things[i], film.tracks[i], state)
            if box[0] < 1 and box[2] > 0 and box[3] > 0:
                in_the_air = state.base < film.tracks[i].base - SHADOW_HEIGHT
                thing = replace(scene.things[i], place="air") if in_the_air else scene.things[i]
                paste_object(picture, draw_layer(i, state.pose, state.facing), thing, box, air)
        if air == "rainy":
            draw_rain(picture, make_generator(seed, number * 1000 + frame, 13))
        pictures.append(picture.reduce(SUPERSAMPLING))
    return pictures


def _draw_layer(film: Film, seed: int, side: int, i: int, pose: str, facing: str) -> Image.Image:
    """Return actor `i`'s drawing; equal arguments give equal drawings, so that no frame changes the actor's details."""
    thing, track = film.scene.things[i], film.tracks[i]
    actor = replace(thing, pose=pose, facing=facing)
    height = track.unit * CATEGORIES[thing.category].poses[pose][2] * side
    rng = make_generator(seed, film.scene.neighbourhood * 10 + i, 12)
    return draw_object(actor, height, name_atmosphere(film.scene), rng)


def save_gif(path: Path, frames: list[Image.Image]) -> None:
    """Write `frames` as an endless animation, each for DURATION milliseconds.

    The frames share one palette of at most 256 colours. A frame that equals the frame before it gets another colour in
    its first pixel. If all frames have the same single colour, they are joined, since the palette has no other colour.
    """
    size = frames[0].size
    strip = Image.new("RGB", (size[0], size[1] * len(frames)))
    for n, frame in enumerate(frames):
        strip.paste(frame, (0, n * size[1]))
    strip = strip.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)  # one palette for all frames
    palette = np.array(strip.getpalette(), np.int64).reshape(-1, 3)
    images = [strip.crop((0, n * size[1], size[0], (n + 1) * size[1])) for n in range(len(frames))]
    # Pillow would merge two equal frames into one: the corner of the second frame gets the nearest other colour
    corner = images[0].tobytes()[0]
    distance = ((palette - palette[corner]) ** 2).sum(1)
    distance[corner] = distance.max() + 1
    nearest_colour = int(distance.argmin())
    for previous, frame in pairwise(images):
        if frame.tobytes() == previous.tobytes():
            frame.putpixel((0, 0), nearest_colour if previous.tobytes()[0] == corner else corner)
    images[0].save(path, "GIF", save_all=True, append_images=images[1:], duration=DURATION, loop=0, optimize=False)
