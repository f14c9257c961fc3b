"""Sampling of random films in neighbourhoods of eight with the same actors, which differ in one or two facts.

Within a neighbourhood an actor is either in the image from the beginning, always at the same place, or in no first
frame. The first frame thus shows none of the differences, except for colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from pipeline.worlds.films.film_facts import Event, Film, Track
from pipeline.worlds.films.film_world import (
    ACT,
    ALONE,
    GAITS,
    LENGTH,
    OTHER,
    RUN,
    SIDES,
    Plan,
    inside_plans,
    outside_plans,
    rest,
)
from pipeline.worlds.scenes.sample_scenes import VariedFact, combinations, horizon_and_shore, scenery
from pipeline.worlds.scenes.scene_facts import DIGITS, Scene, Thing, pick, stream
from pipeline.worlds.scenes.scene_world import CATEGORIES, CONDITIONS, NEIGHBOURS, PATTERNS, SETTINGS, SIZES

STORIES = {"solo": 0.5, "both": 0.27, "joint": 0.23}  # shares of neighbourhoods; joint: meet, follow, lead and pass
JOINT = ("meet", "follow", "lead", "pass")
Spans = tuple[tuple[float, float], ...]
"""Start and end of each actor's events, in fractions of the film's length."""
BEHIND: dict[str, Spans] = {"follow": ((0.0, 0.8), (0.2, 1.0)), "lead": ((0.2, 1.0), (0.0, 0.8))}
IN_TURN: dict[str, Spans] = {"in_order": ((0.0, 0.5), (0.5, 1.0)), "reversed": ((0.5, 1.0), (0.0, 0.5))}
ORDERS = ("together", "in_order", "reversed")
STARTS_INSIDE = 0.45  # share of actors
SCALE = {1: 0.82, 2: 0.66}  # scale of drawings, by the number of actors
LIKELY = {"plan": 3.0, "side": 2.5, "order": 2.0, "gait": 0.6, "colour": 0.8, "story": 6.0}


@dataclass(frozen=True)
class CastMember:
    """Facts of one actor: its fixed ones, and those that may differ within the neighbourhood."""

    thing: Thing
    track: Track
    plan: Plan
    side: str
    gait: str


@dataclass(frozen=True)
class Cast:
    """Film before its events have times."""

    parts: tuple[CastMember, ...]
    story: str
    order: str


def sample_film(seed: int, index: int) -> Film:
    """Return the facts of film `index` of the world `seed`."""
    return sample_film_neighbourhood(seed, index // NEIGHBOURS)[index % NEIGHBOURS]


@lru_cache(maxsize=64)
def sample_film_neighbourhood(seed: int, number: int) -> tuple[Film, ...]:
    """Return NEIGHBOURS films of one setting, weather and light with the same actors.

    Any two of them differ in one or two facts.
    """
    rng = stream(seed, number, 10)
    setting = pick(rng, tuple(SETTINGS))
    weather, light = pick(rng, tuple(CONDITIONS), tuple(CONDITIONS.values()))
    kind = pick(rng, tuple(STORIES), tuple(STORIES.values()))
    for _ in range(1000):  # resample if the films cannot differ enough
        names = _names(rng, setting, 1 if kind == "solo" else 2, joint=kind == "joint")
        horizon, shore = horizon_and_shore(rng, setting, "boat" in names)
        parts = _parts(rng, names, setting, horizon, shore, joint=kind == "joint")
        story = pick(rng, JOINT) if kind == "joint" else kind
        cast = Cast(parts, story, pick(rng, ORDERS) if story == "both" else "")
        varied = _varied(rng, cast, setting)
        if not varied:
            continue
        casts = [_changed(cast, varied, values) for values in combinations(rng, varied)]
        landmarks = scenery(rng, setting, [])
        scene = Scene(setting, weather, light, horizon, shore, landmarks, (), number)
        return tuple(_film(rng, scene, each) for each in casts)
    raise RuntimeError(f"no neighbourhood {number} of seed {seed}")


def _names(rng: np.random.Generator, setting: str, number: int, joint: bool) -> list[str]:
    names: dict[str, None] = {}  # a dict serves as an ordered set
    while len(names) < number:
        name = pick(rng, SETTINGS[setting])
        if name in GAITS and not (joint and name in ALONE):
            names[name] = None
    return sorted(names, key=lambda name: -CATEGORIES[name].salience)  # the most salient first


def _parts(
    rng: np.random.Generator, names: Sequence[str], setting: str, horizon: float, shore: float, joint: bool
) -> tuple[CastMember, ...]:
    """Return actors with one plan each, at places where they do not hide each other."""
    parts = []
    mirrored = rng.random() < 0.5
    for i, name in enumerate(names):
        category = CATEGORIES[name]
        inside = not joint and rng.random() < STARTS_INSIDE
        size = pick(rng, tuple(SIZES), (0.15, 0.55, 0.30))
        place = "water" if name == "boat" else "air" if name == "balloon" else "ground"
        thing = Thing(
            category=name,
            colour=pick(rng, category.colours),
            pattern=pick(rng, PATTERNS[1:]) if rng.random() < 0.6 * category.patterned else "plain",
            size=size,
            count=1,
            pose=rest(name),
            place=place,
            facing=pick(rng, SIDES),
        )
        near = i == 0 if len(names) > 1 else rng.random() < 0.7
        base = {
            "water": rng.uniform(horizon + 0.12, max(shore - 0.03, horizon + 0.14)),
            "air": rng.uniform(0.50, 0.58),
            "ground": rng.uniform(0.90, 0.96)
            if near
            else rng.uniform(max(0.72, shore + 0.05), max(0.82, shore + 0.08)),
        }[place]
        x = rng.uniform(0.36, 0.64) if len(names) == 1 else rng.uniform(0.24, 0.34)
        x = 1 - x if len(names) > 1 and (i == 1) != mirrored else x
        unit = category.unit * SIZES[size] * SCALE[len(names)]
        track = Track(round(float(x), DIGITS), round(float(base), DIGITS), round(unit, DIGITS), inside)
        plans = inside_plans(name, setting) if inside else outside_plans(name, setting)
        parts.append(CastMember(thing, track, pick(rng, plans), pick(rng, SIDES), pick(rng, GAITS[name])))
    return tuple(parts)


def _varied(rng: np.random.Generator, cast: Cast, setting: str) -> list[VariedFact]:
    """Return two facts, one of them about events, with eight combinations or more; [] if there are none."""
    options = []
    for i, part in enumerate(cast.parts):
        name = part.thing.category
        options += [VariedFact("colour", i, CATEGORIES[name].colours)]
        if cast.story in JOINT:
            continue
        plans = inside_plans(name, setting) if part.track.inside else outside_plans(name, setting)
        options += [
            VariedFact("plan", i, plans),
            VariedFact("gait", i, GAITS[name]),
            VariedFact("side", i, SIDES),
        ]
    if cast.story == "both":
        options += [VariedFact("order", -1, ORDERS)]
    if cast.story in JOINT:
        options += [
            VariedFact("story", -1, JOINT),
            VariedFact("side", 0, SIDES),
            VariedFact("gait", 0, GAITS[cast.parts[0].thing.category]),
        ]
    weights = [LIKELY[option.what] * (0.7 if option.of == 1 else 1.0) for option in options]
    first, second = pick(rng, options, weights), pick(rng, options, weights)
    if (first.what, first.of) == (second.what, second.of) or first.what == second.what == "colour":
        return []
    # sides and gaits differ only in plans that travel
    moving = {fact.of for fact in (first, second) if fact.what in ("side", "gait")}
    facts = [
        fact._replace(values=tuple(plan for plan in fact.values if _travels(plan)))
        if fact.what == "plan" and fact.of in moving
        else fact
        for fact in (first, second)
    ]
    fixed = {fact.of for fact in facts if fact.what == "plan"}
    if cast.story not in JOINT and any(not _travels(cast.parts[i].plan) for i in moving - fixed):
        return []
    a, b = (len(fact.values) for fact in facts)
    numbers = [(n, m) for n, m in ((2, 4), (4, 2), (3, 3)) if n <= a and m <= b]
    if "colour" in (first.what, second.what):  # colour is the lesser difference, so it has two values
        numbers = (
            [(2, 4)] if first.what == "colour" and b >= 4 else [(4, 2)] if second.what == "colour" and a >= 4 else []
        )
    if not numbers:
        return []
    chosen = zip(facts, pick(rng, numbers), strict=True)
    return [fact.some(rng, number) for fact, number in chosen]


def _travels(plan: Plan) -> bool:
    return any(what in LENGTH and what not in ("stop", "turn") for what in plan)


def _changed(cast: Cast, varied: Sequence[VariedFact], values: Sequence[Any]) -> Cast:
    """Return the cast with the given values of the varied facts."""
    parts = list(cast.parts)
    for fact, value in zip(varied, values, strict=True):
        if fact.of < 0:
            cast = replace(cast, **{fact.what: value})
        elif fact.what == "colour":
            parts[fact.of] = replace(parts[fact.of], thing=replace(parts[fact.of].thing, colour=value))
        else:
            parts[fact.of] = replace(parts[fact.of], **{fact.what: value})
    return replace(cast, parts=tuple(parts))


def _film(rng: np.random.Generator, scene: Scene, cast: Cast) -> Film:
    """Return the film of the cast, with a random pace for each actor."""
    if cast.story in JOINT:
        cast = _together(cast)
    spans = BEHIND.get(cast.story) or IN_TURN.get(cast.order) or ((0.0, 1.0),) * len(cast.parts)
    events = tuple(_events(rng, part, span) for part, span in zip(cast.parts, spans, strict=True))
    things = tuple(part.thing for part in cast.parts)
    return Film(replace(scene, things=things), cast.story, cast.order, tuple(p.track for p in cast.parts), events)


def _together(cast: Cast) -> Cast:
    """Return the cast with plans and sides for a joint story: meet, follow, lead or pass.

    The first actor comes from its `side`.
    """
    first, second = cast.parts
    side = first.side if cast.story in BEHIND else OTHER[first.side]
    plan = ("enter",) if cast.story == "meet" else ("cross",)
    # each stops on the side from which it comes
    x = abs(first.track.x - 0.5) * 0.75
    places = (0.5 - x, 0.5 + x) if first.side == "left" else (0.5 + x, 0.5 - x)
    tracks = [p.track._replace(x=round(at, DIGITS)) for p, at in zip((first, second), places, strict=True)]
    gait = first.gait if cast.story in BEHIND and first.gait in GAITS[second.thing.category] else second.gait
    return replace(
        cast,
        parts=(
            replace(first, plan=plan, track=tracks[0]),
            replace(second, plan=plan, side=side, gait=gait, track=tracks[1]),
        ),
    )


def _events(rng: np.random.Generator, part: CastMember, span: tuple[float, float]) -> tuple[Event, ...]:
    """Return the actor's plan as events with times between the two moments of `span`."""
    lengths = [LENGTH.get(what, ACT) for what in part.plan]
    begin, end = span
    slack = (end - begin) * float(rng.uniform(0.03, 0.10))
    begin, end = begin + slack, end - slack
    unit, at = (end - begin) / max(sum(lengths), 0.7), begin
    events, side = [], part.side
    for what, length in zip(part.plan, lengths, strict=True):
        travels = _travels((what,))
        if travels:
            # an actor comes from `side`; one that is inside from the beginning leaves to it
            away = what == "leave" and part.plan[0] == "enter"
            where, gait = (OTHER[side] if away else side), part.gait
        else:
            where, gait = "", ""
        taken = unit * length * (RUN if gait == "run" else 1.0)
        events.append(Event(what, where, gait, round(at, DIGITS), round(at + taken, DIGITS)))
        at += taken
    return tuple(events)
