"""Motion of actors: from their events to pose, facing and box at each moment."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.worlds.films.film_facts import ActorView, Event, Film, Track
from pipeline.worlds.films.film_world import OTHER, POSED, poses, rest
from pipeline.worlds.scenes.scene_facts import DIGITS, Box, Thing, area
from pipeline.worlds.scenes.scene_world import CATEGORIES

STEPS = 7  # changes of pose on the way across the image
BOB, HOP = 0.012, 0.16  # heights of a step and of a jump, as fractions of the image
FLIGHT = 0.34  # height of a bird's flight above the ground
CLIMB = 0.24  # distance that a balloon rises or sinks
LEAST = 0.3  # share of an actor that must be inside the image for it to be visible


class Moment(NamedTuple):
    """State of an actor at one time: its middle, its foot, its pose and its facing."""

    x: float
    base: float
    pose: str
    facing: str


def moment(thing: Thing, track: Track, events: tuple[Event, ...], time: float) -> Moment | None:
    """Return the actor at `time`, a fraction of the film's length; None while it is outside the image."""
    pose, facing, x, base = thing.pose, thing.facing, track.x, track.base
    there = track.inside
    for event in events:
        if time < event.start:
            break
        part = min(1.0, (time - event.start) / (event.end - event.start))
        going = part < 1.0
        if event.gait:
            start, end = _way(event, x, track, thing)
            x = start + (end - start) * part
            facing, there = ("right" if end > start else "left"), going or event.what == "enter"
            shown, step = poses(thing.category, event.gait), int(part * abs(end - start) * STEPS)
            pose = shown[step % len(shown)] if going else rest(thing.category)
            if event.gait == "fly":
                base = track.base - FLIGHT * {"enter": 1 - part, "leave": part, "return": part}.get(event.what, 1.0)
            elif event.gait in ("walk", "run"):
                base = track.base - (BOB if going and step % 2 else 0.0)
        elif event.what in POSED:
            pose = POSED[event.what] if part > 0.3 else rest(thing.category)
        elif event.what == "turn":
            pose = rest(thing.category)
            facing = OTHER[facing] if part > 0.4 else facing
        elif event.what == "jump":
            pose = "jumping" if going and thing.category in ("man", "woman", "boy", "girl") else rest(thing.category)
            base = track.base - HOP * 4 * part * (1 - part)
        elif event.what == "wave":
            pose = "waving" if going else rest(thing.category)
        elif event.what in ("rise", "sink"):
            base += (-CLIMB if event.what == "rise" else CLIMB) * part
    return Moment(x, base, pose, facing) if there else None


def _way(event: Event, x: float, track: Track, thing: Thing) -> tuple[float, float]:
    """Return the start and the end of an event's motion of an actor that is at `x`."""
    reach = max(max(extent[:2]) for extent in CATEGORIES[thing.category].poses.values()) * track.unit
    beyond = {"left": -reach, "right": 1 + reach}
    if event.what == "enter":
        return beyond[event.side], track.x
    if event.what == "cross":
        return beyond[event.side], beyond[OTHER[event.side]]
    return x, beyond[event.side]


def box_of(thing: Thing, track: Track, now: Moment) -> Box:
    """Return the box of the actor's drawing; parts of it may be outside the image."""
    left, right, top = (track.unit * reach for reach in CATEGORIES[thing.category].poses[now.pose])
    if now.facing == "left":
        left, right = right, left
    corners = (now.x - left, now.base - top, now.x + right, now.base)
    return tuple(round(float(v), DIGITS) for v in corners)  # type: ignore[return-value]


def times(frames: int) -> list[float]:
    """Return the times of the frames, in fractions of the film's length."""
    return [frame / (frames - 1) for frame in range(frames)]


def seen_in(film: Film, frames: int) -> list[ActorView]:
    """Return each actor in each frame in which enough of it is visible."""
    views = []
    for frame, time in enumerate(times(frames)):
        for i, (thing, track, events) in enumerate(zip(film.scene.things, film.tracks, film.events, strict=True)):
            now = moment(thing, track, events, time)
            if now is None:
                continue
            box = box_of(thing, track, now)
            clipped = (max(0.0, box[0]), max(0.0, box[1]), min(1.0, box[2]), min(1.0, box[3]))
            if area(clipped) >= LEAST * area(box):
                views.append(ActorView(frame, i, now.pose, now.facing, clipped))
    return views
