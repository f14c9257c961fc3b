"""Sampling of random films in neighbourhoods of eight with the same actors; any two differ in one or two facts.

In all films of a neighbourhood, an actor is either at the same place in the first frame, or outside the first frame.
The first frames therefore differ only in colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from pipeline.worlds.films.film_facts import Event, Film, Track
from pipeline.worlds.films.film_world import (
    ACT_LENGTH,
    EVENT_LENGTHS,
    GAITS,
    OPPOSITE,
    RUN_FACTOR,
    SIDES,
    SOLO_CATEGORIES,
    Plan,
    choose_rest_pose,
    list_inside_plans,
    list_outside_plans,
)
from pipeline.worlds.scenes.sample_scenes import VariedFact, choose_scenery, list_combinations, sample_horizon_and_shore
from pipeline.worlds.scenes.scene_facts import DIGITS, Scene, Thing, make_generator, pick
from pipeline.worlds.scenes.scene_world import CATEGORIES, CONDITIONS, NEIGHBOURS, PATTERNS, SETTINGS, SIZES

STORIES = {"solo": 0.5, "both": 0.27, "joint": 0.23}  # shares of neighbourhoods; joint: one of JOINT
JOINT = ("meet", "follow", "lead", "pass")
Spans = tuple[tuple[float, float], ...]
"""Start and end of each actor's events, in fractions of the film's length."""
STORY_SPANS: dict[str, Spans] = {"follow": ((0.0, 0.8), (0.2, 1.0)), "lead": ((0.2, 1.0), (0.0, 0.8))}
ORDER_SPANS: dict[str, Spans] = {"in_order": ((0.0, 0.5), (0.5, 1.0)), "reversed": ((0.5, 1.0), (0.0, 0.5))}
ORDERS = ("together", "in_order", "reversed")
STARTS_INSIDE = 0.45  # share of actors in the first frame for the stories `solo` and `both`; 0 for joint stories
SCALE = {1: 0.82, 2: 0.66}  # scale of drawings, by the number of actors
# relative probability that a fact varies within a neighbourhood
WEIGHTS = {"plan": 3.0, "side": 2.5, "order": 2.0, "gait": 0.6, "colour": 0.8, "story": 6.0}


@dataclass(frozen=True)
class CastMember:
    """Actor with the facts that may differ within the neighbourhood: colour (of `thing`), plan, side and gait."""

    thing: Thing
    track: Track
    plan: Plan
    side: str
    gait: str


@dataclass(frozen=True)
class FilmPlan:
    """Film without times of its events."""

    members: tuple[CastMember, ...]
    story: str
    order: str


def sample_film(seed: int, index: int) -> Film:
    """Return the facts of film `index` of the world `seed`."""
    return sample_film_neighbourhood(seed, index // NEIGHBOURS)[index % NEIGHBOURS]


@lru_cache(maxsize=64)
def sample_film_neighbourhood(seed: int, number: int) -> tuple[Film, ...]:
    """Return NEIGHBOURS films of one setting, weather and light with the same actors.

    Any two of the films differ in one or two facts. Raises RuntimeError if 1000 draws give no such films.
    """
    rng = make_generator(seed, number, 10)
    setting = pick(rng, tuple(SETTINGS))
    weather, light = pick(rng, tuple(CONDITIONS), tuple(CONDITIONS.values()))
    kind = pick(rng, tuple(STORIES), tuple(STORIES.values()))
    for _ in range(1000):  # resample if the films cannot differ enough
        names = _draw_categories(rng, setting, 1 if kind == "solo" else 2, joint=kind == "joint")
        horizon, shore = sample_horizon_and_shore(rng, setting, "boat" in names)
        members = _sample_members(rng, names, setting, horizon, shore, joint=kind == "joint")
        story = pick(rng, JOINT) if kind == "joint" else kind
        untimed_film = FilmPlan(members, story, pick(rng, ORDERS) if story == "both" else "")
        varied_facts = _draw_varied_facts(rng, untimed_film, setting)
        if not varied_facts:
            continue
        films = [_apply_values(untimed_film, varied_facts, values) for values in list_combinations(rng, varied_facts)]
        landmarks = choose_scenery(rng, setting, [])
        scene = Scene(setting, weather, light, horizon, shore, landmarks, (), number)
        return tuple(_build_film(rng, scene, film) for film in films)
    raise RuntimeError(f"seed {seed}, neighbourhood {number}: no eight different films in 1000 draws; change the seed")


def _draw_categories(rng: np.random.Generator, setting: str, number: int, joint: bool) -> list[str]:
    names: dict[str, None] = {}  # a dict serves as an ordered set
    while len(names) < number:
        name = pick(rng, SETTINGS[setting])
        if name in GAITS and not (joint and name in SOLO_CATEGORIES):
            names[name] = None
    return sorted(names, key=lambda name: -CATEGORIES[name].salience)  # the most salient first


def _sample_members(
    rng: np.random.Generator, names: Sequence[str], setting: str, horizon: float, shore: float, joint: bool
) -> tuple[CastMember, ...]:
    """Sample the actors with one plan each; two actors rest in different halves of the image and may overlap."""
    members = []
    is_mirrored = rng.random() < 0.5
    for i, name in enumerate(names):
        category = CATEGORIES[name]
        inside = not joint and rng.random() < STARTS_INSIDE
        size = pick(rng, tuple(SIZES), (0.15, 0.55, 0.30))
        place = {"boat": "water", "balloon": "air"}.get(name, "ground")
        thing = Thing(
            category=name,
            colour=pick(rng, category.colours),
            pattern=pick(rng, PATTERNS[1:]) if rng.random() < 0.6 * category.patterned else "plain",
            size=size,
            count=1,
            pose=choose_rest_pose(name),
            place=place,
            facing=pick(rng, SIDES),
        )
        in_front = i == 0 if len(names) > 1 else rng.random() < 0.7
        ground = (0.90, 0.96) if in_front else (max(0.72, shore + 0.05), max(0.82, shore + 0.08))
        base = {  # all three are drawn, so that the place does not change later random numbers
            "water": rng.uniform(horizon + 0.12, max(shore - 0.03, horizon + 0.14)),
            "air": rng.uniform(0.50, 0.58),
            "ground": rng.uniform(*ground),
        }[place]
        x = rng.uniform(0.36, 0.64) if len(names) == 1 else rng.uniform(0.24, 0.34)
        x = 1 - x if len(names) > 1 and (i == 1) != is_mirrored else x
        unit = category.unit * SIZES[size] * SCALE[len(names)]
        track = Track(round(float(x), DIGITS), round(float(base), DIGITS), round(unit, DIGITS), inside)
        plans = list_inside_plans(name, setting) if inside else list_outside_plans(name, setting)
        members.append(CastMember(thing, track, pick(rng, plans), pick(rng, SIDES), pick(rng, GAITS[name])))
    return tuple(members)


def _draw_varied_facts(rng: np.random.Generator, film: FilmPlan, setting: str) -> list[VariedFact]:
    """Draw two facts that vary, at most one of them a colour, with eight or nine combinations of their values.

    Return [] for the same fact twice, for two colours, and for facts with too few values. Return [] also for the side
    or gait of an actor with a fixed plan that does not move it across the image.
    """
    options = []
    for i, member in enumerate(film.members):
        name = member.thing.category
        options += [VariedFact("colour", i, CATEGORIES[name].colours)]
        if film.story in JOINT:
            continue
        plans = list_inside_plans(name, setting) if member.track.inside else list_outside_plans(name, setting)
        options += [
            VariedFact("plan", i, plans),
            VariedFact("gait", i, GAITS[name]),
            VariedFact("side", i, SIDES),
        ]
    if film.story == "both":
        options += [VariedFact("order", -1, ORDERS)]
    if film.story in JOINT:
        options += [
            VariedFact("story", -1, JOINT),
            VariedFact("side", 0, SIDES),
            VariedFact("gait", 0, GAITS[film.members[0].thing.category]),
        ]
    weights = [WEIGHTS[option.name] * (0.7 if option.thing == 1 else 1.0) for option in options]
    first, second = pick(rng, options, weights), pick(rng, options, weights)
    if (first.name, first.thing) == (second.name, second.thing) or first.name == second.name == "colour":
        return []
    # an actor has a side and a gait only where its plan moves it
    moving_actors = {fact.thing for fact in (first, second) if fact.name in ("side", "gait")}
    facts = []
    for fact in (first, second):
        if fact.name == "plan" and fact.thing in moving_actors:
            fact = fact._replace(values=tuple(plan for plan in fact.values if _travels(plan)))
        facts.append(fact)
    replanned_actors = {fact.thing for fact in facts if fact.name == "plan"}
    if film.story not in JOINT and any(not _travels(film.members[i].plan) for i in moving_actors - replanned_actors):
        return []
    a, b = (len(fact.values) for fact in facts)
    count_pairs = [(n, m) for n, m in ((2, 4), (4, 2), (3, 3)) if n <= a and m <= b]
    if "colour" in (first.name, second.name):  # events matter more, so a colour has only two values
        count_pair, other_count = ((2, 4), b) if first.name == "colour" else ((4, 2), a)
        count_pairs = [count_pair] if other_count >= 4 else []
    if not count_pairs:
        return []
    facts_with_counts = zip(facts, pick(rng, count_pairs), strict=True)
    return [fact.sample_values(rng, count) for fact, count in facts_with_counts]


def _travels(plan: Plan) -> bool:
    """Return whether the plan moves the actor across the image."""
    return any(event in EVENT_LENGTHS and event not in ("stop", "turn") for event in plan)


def _apply_values(film: FilmPlan, varied_facts: Sequence[VariedFact], values: Sequence[Any]) -> FilmPlan:
    """Return the film with the given values of the varied facts."""
    members = list(film.members)
    for fact, value in zip(varied_facts, values, strict=True):
        if fact.thing < 0:
            film = replace(film, **{fact.name: value})
        elif fact.name == "colour":
            member = members[fact.thing]
            members[fact.thing] = replace(member, thing=replace(member.thing, colour=value))
        else:
            members[fact.thing] = replace(members[fact.thing], **{fact.name: value})
    return replace(film, members=tuple(members))


def _build_film(rng: np.random.Generator, scene: Scene, film: FilmPlan) -> Film:
    """Return the facts of `film` in `scene`, with random times for each actor's events."""
    if film.story in JOINT:
        film = _plan_joint_story(film)
    spans = STORY_SPANS.get(film.story) or ORDER_SPANS.get(film.order) or ((0.0, 1.0),) * len(film.members)
    events = tuple(_schedule_events(rng, member, span) for member, span in zip(film.members, spans, strict=True))
    things = tuple(member.thing for member in film.members)
    tracks = tuple(member.track for member in film.members)
    return Film(replace(scene, things=things), film.story, film.order, tracks, events)


def _plan_joint_story(film: FilmPlan) -> FilmPlan:
    """Return the film with plans, sides, gaits and rest positions for a joint story: meet, follow, lead or pass.

    The first actor enters from its `side`. In the stories follow and lead, the second actor has the gait of the first
    if its category has that gait.
    """
    first, second = film.members
    side = first.side if film.story in STORY_SPANS else OPPOSITE[first.side]
    plan = ("enter",) if film.story == "meet" else ("cross",)
    # actors that meet stop on the sides from which they enter
    offset = abs(first.track.x - 0.5) * 0.75
    rest_x = (0.5 - offset, 0.5 + offset) if first.side == "left" else (0.5 + offset, 0.5 - offset)
    tracks = [member.track._replace(x=round(x, DIGITS)) for member, x in zip((first, second), rest_x, strict=True)]
    gait = first.gait if film.story in STORY_SPANS and first.gait in GAITS[second.thing.category] else second.gait
    return replace(
        film,
        members=(
            replace(first, plan=plan, track=tracks[0]),
            replace(second, plan=plan, side=side, gait=gait, track=tracks[1]),
        ),
    )


def _schedule_events(rng: np.random.Generator, member: CastMember, span: tuple[float, float]) -> tuple[Event, ...]:
    """Return the actor's plan as events inside `span`: start and end, in fractions of the film's length."""
    lengths = [EVENT_LENGTHS.get(name, ACT_LENGTH) for name in member.plan]
    begin, end = span
    slack = (end - begin) * float(rng.uniform(0.03, 0.10))
    begin, end = begin + slack, end - slack
    unit, time = (end - begin) / max(sum(lengths), 0.7), begin
    events = []
    for name, length in zip(member.plan, lengths, strict=True):
        side, gait = "", ""
        if _travels((name,)):
            # an actor that entered leaves on the other side; an actor that began inside leaves on its `side`
            crosses = name == "leave" and member.plan[0] == "enter"
            side, gait = (OPPOSITE[member.side] if crosses else member.side), member.gait
        duration = unit * length * (RUN_FACTOR if gait == "run" else 1.0)
        events.append(Event(name, side, gait, round(time, DIGITS), round(time + duration, DIGITS)))
        time += duration
    return tuple(events)
