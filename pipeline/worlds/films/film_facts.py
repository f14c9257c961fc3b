"""Facts of one film: its actors, the times of their events, and their boxes in every frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.worlds.scenes.scene_facts import Box, Scene, read_drawn_facts

FILM_FACTS = "films.jsonl"  # file of facts, one line per film


class Event(NamedTuple):
    """Event of one actor in a part of the film."""

    kind: str  # enter, cross, return, leave, or an act of film_world.py
    side: str  # side from which the actor comes; for return and leave, the side to which it goes; "" for acts
    gait: str  # "" for acts
    start: float  # as a fraction of the film's length
    end: float


class Track(NamedTuple):
    """Geometry of an actor, in fractions of the image, y downwards."""

    x: float  # middle of the actor at rest
    base: float  # y of its foot at rest
    unit: float  # length of one unit of its drawing
    inside: bool  # whether the actor is inside the image from the beginning


class ActorView(NamedTuple):
    """Actor in one frame; the box is clipped to the image."""

    frame: int  # from 0
    actor: int
    pose: str
    facing: str
    box: Box


@dataclass(frozen=True)
class Film:
    """All facts of a film, by which captions are judged.

    `scene` holds the setting and, as its things, the actors at the beginning. `story` is solo for one actor. For two
    actors it is meet, pass, follow (the second follows the first), lead (the first follows the second) or both. In
    the story both, each actor has its own events; `order` states their order in time.
    """

    scene: Scene
    story: str
    order: str  # for the story `both`: together, in_order or reversed; else ""
    tracks: tuple[Track, ...]
    events: tuple[tuple[Event, ...], ...]  # events of each actor, in order of time

    def record(self, views: list[ActorView]) -> dict[str, Any]:
        """Return the facts as JSON values; `views` holds the actors' boxes in the frames."""
        facts = self.scene.record()
        for thing, track, events in zip(facts["objects"], self.tracks, self.events, strict=True):
            thing |= {"track": track._asdict(), "events": [event._asdict() for event in events]}
        boxes = [{**view._asdict(), "category": self.scene.things[view.actor].category} for view in views]
        return {**facts, "story": self.story, "order": self.order, "boxes": boxes}


class FilmRecord(NamedTuple):
    """Film, its number of frames, and its actors' boxes in them."""

    film: Film
    frames: int
    views: tuple[ActorView, ...]


def read_films(path: Path) -> dict[str, FilmRecord]:
    """Return the films of a `films.jsonl` by image id.

    Raises UserError as `read_drawn_facts` does, also where a line lacks facts. Types and ranges of values are not
    checked.
    """
    return read_drawn_facts(path, "film", _parse_record)


def _parse_record(record: dict[str, Any]) -> FilmRecord:
    objects = record["objects"]
    tracks = tuple(Track(**thing.pop("track")) for thing in objects)
    events = tuple(tuple(Event(**event) for event in thing.pop("events")) for thing in objects)
    film = Film(Scene.from_record(record), record["story"], record["order"], tracks, events)
    views = (
        ActorView(box["frame"], box["actor"], box["pose"], box["facing"], tuple(box["box"])) for box in record["boxes"]
    )
    return FilmRecord(film, record["frames"], tuple(views))
