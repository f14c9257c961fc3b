"""Motion of actors: pose, facing and box at each moment, computed from their events."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.worlds.films.film_facts import ActorView, Event, Film, Track
from pipeline.worlds.films.film_world import FINAL_POSES, OPPOSITE, choose_rest_pose, list_poses
from pipeline.worlds.scenes.scene_facts import DIGITS, Box, Thing, compute_area
from pipeline.worlds.scenes.scene_world import CATEGORIES

STEPS = 7  # changes of pose on a path as long as the image is wide
STEP_HEIGHT, JUMP_HEIGHT = 0.012, 0.16  # all heights are fractions of the image
FLIGHT_HEIGHT = 0.34  # height of a bird's flight above the ground
CLIMB_HEIGHT = 0.24  # distance that a balloon rises or sinks
MIN_VISIBLE = 0.3  # smallest share of an actor's box inside the image for which the actor counts as visible


class ActorState(NamedTuple):
    """State of an actor at one time; x and y are fractions of the image, y downwards."""

    x: float  # middle of the actor
    base: float  # y of its foot
    pose: str
    facing: str


def compute_actor_state(thing: Thing, track: Track, events: tuple[Event, ...], time: float) -> ActorState | None:
    """Return the actor's state at `time`, a fraction of the film's length.

    The state is None before the actor enters the image and after it has left.
    """
    pose, facing, x, base = thing.pose, thing.facing, track.x, track.base
    inside = track.inside
    for event in events:
        if time < event.start:
            break
        progress = min(1.0, (time - event.start) / (event.end - event.start))
        moving = progress < 1.0
        if event.gait:
            start, end = _find_path(event, x, track, thing)
            x = start + (end - start) * progress
            facing = "right" if end > start else "left"
            inside = moving or event.kind == "enter"
            gait_poses, step = list_poses(thing.category, event.gait), int(progress * abs(end - start) * STEPS)
            pose = gait_poses[step % len(gait_poses)] if moving else choose_rest_pose(thing.category)
            if event.gait == "fly":
                height_share = {"enter": 1 - progress, "leave": progress, "return": progress}.get(event.kind, 1.0)
                base = track.base - FLIGHT_HEIGHT * height_share
            elif event.gait in ("walk", "run"):
                base = track.base - (STEP_HEIGHT if moving and step % 2 else 0.0)
        elif event.kind in FINAL_POSES:
            pose = FINAL_POSES[event.kind] if progress > 0.3 else choose_rest_pose(thing.category)
        elif event.kind == "turn":
            pose = choose_rest_pose(thing.category)
            facing = OPPOSITE[facing] if progress > 0.4 else facing
        elif event.kind == "jump":
            jumps = moving and thing.category in ("man", "woman", "boy", "girl")
            pose = "jumping" if jumps else choose_rest_pose(thing.category)
            base = track.base - JUMP_HEIGHT * 4 * progress * (1 - progress)
        elif event.kind == "wave":
            pose = "waving" if moving else choose_rest_pose(thing.category)
        elif event.kind in ("rise", "sink"):
            base += (-CLIMB_HEIGHT if event.kind == "rise" else CLIMB_HEIGHT) * progress
    return ActorState(x, base, pose, facing) if inside else None


def _find_path(event: Event, x: float, track: Track, thing: Thing) -> tuple[float, float]:
    """Return the x at which the motion of an event starts and ends, for an actor that is at `x`."""
    half_width = max(max(extent[:2]) for extent in CATEGORIES[thing.category].poses.values()) * track.unit
    outside_x = {"left": -half_width, "right": 1 + half_width}
    if event.kind == "enter":
        return outside_x[event.side], track.x
    if event.kind == "cross":
        return outside_x[event.side], outside_x[OPPOSITE[event.side]]
    return x, outside_x[event.side]


def compute_box(thing: Thing, track: Track, state: ActorState) -> Box:
    """Return the box of the actor's drawing; parts of it may be outside the image."""
    left, right, top = (track.unit * extent for extent in CATEGORIES[thing.category].poses[state.pose])
    if state.facing == "left":
        left, right = right, left
    corners = (state.x - left, state.base - top, state.x + right, state.base)
    return tuple(round(float(v), DIGITS) for v in corners)  # type: ignore[return-value]


def compute_frame_times(frames: int) -> list[float]:
    """Return the times of `frames` frames (two or more), in fractions of the film's length."""
    return [frame / (frames - 1) for frame in range(frames)]


def list_visible_actors(film: Film, frames: int) -> list[ActorView]:
    """Return a view of each actor in each frame where at least MIN_VISIBLE of its box is inside the image."""
    views = []
    for frame, time in enumerate(compute_frame_times(frames)):
        for i, (thing, track, events) in enumerate(zip(film.scene.things, film.tracks, film.events, strict=True)):
            state = compute_actor_state(thing, track, events, time)
            if state is None:
                continue
            box = compute_box(thing, track, state)
            visible_box = (max(0.0, box[0]), max(0.0, box[1]), min(1.0, box[2]), min(1.0, box[3]))
            if compute_area(visible_box) >= MIN_VISIBLE * compute_area(box):
                views.append(ActorView(frame, i, state.pose, state.facing, visible_box))
    return views
