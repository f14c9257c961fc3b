"""One film's facts: who is there, what each does from when to when, and where each is in every frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.scenes.facts import Box, Scene, read_drawn

FACTS = "films.jsonl"  # the file that holds them, one line per film


class Event(NamedTuple):
    """What one actor does in a part of the film."""

    what: str  # enter, cross, return, leave, or an act of world.py
    side: str  # where it comes from, or of return and leave: where it goes; of acts "": none
    gait: str  # of acts: ""
    start: float  # in fractions of the film's length
    end: float


class Track(NamedTuple):
    """How an actor is to be seen: its place when it is not on its way, and the size of its drawing's unit.

    All in fractions of the picture, y downwards.
    """

    x: float
    base: float
    unit: float
    inside: bool  # from the beginning


class Seen(NamedTuple):
    """One actor in one frame; the box is clipped to the picture."""

    frame: int  # from 0
    actor: int
    pose: str
    facing: str
    box: Box


@dataclass(frozen=True)
class Film:
    """All facts that captions are judged by.

    `scene` holds the setting and, as its things, the actors as they are at the beginning. story: solo; of two actors
    meet, pass, follow (the second one the first) or lead (the first one follows), or both: each does something of its
    own, at once (together) or one after the other (in order, reversed).
    """

    scene: Scene
    story: str
    order: str  # of `both`: together, in_order or reversed; else ""
    tracks: tuple[Track, ...]
    events: tuple[tuple[Event, ...], ...]  # of each actor, one after the other

    def record(self, seen: list[Seen]) -> dict[str, Any]:
        """The facts as JSON can hold them; `seen` is where the actors are in the frames."""
        facts = self.scene.record()
        for thing, track, events in zip(facts["objects"], self.tracks, self.events, strict=True):
            thing |= {"track": track._asdict(), "events": [event._asdict() for event in events]}
        boxes = [{**each._asdict(), "category": self.scene.things[each.actor].category} for each in seen]
        return {**facts, "story": self.story, "order": self.order, "boxes": boxes}


class Known(NamedTuple):
    """A film, how many frames were drawn of it, and where its actors are in them."""

    film: Film
    frames: int
    seen: tuple[Seen, ...]


def read_films(path: Path) -> dict[str, Known]:
    """The films of a `films.jsonl` by the prepared data's image ids; UserError where it is missing or broken."""
    return read_drawn(path, "film", _known)


def _known(record: dict[str, Any]) -> Known:
    objects = record["objects"]
    tracks = tuple(Track(**thing.pop("track")) for thing in objects)
    events = tuple(tuple(Event(**event) for event in thing.pop("events")) for thing in objects)
    film = Film(Scene.of(record), record["story"], record["order"], tracks, events)
    seen = (Seen(box["frame"], box["actor"], box["pose"], box["facing"], tuple(box["box"])) for box in record["boxes"])
    return Known(film, record["frames"], tuple(seen))
