"""Sampling of random scenes in neighbourhoods of eight.

Two varied facts distinguish the scenes of a neighbourhood; any two scenes differ in one or both. Other facts that
depend on random positions may differ as well: near, beside, relations to a third thing, and a visible cactus or barn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from pipeline.worlds.scenes.layout import place_things
from pipeline.worlds.scenes.scene_facts import DIGITS, Scene, Thing, compute_area, compute_overlap, make_generator, pick
from pipeline.worlds.scenes.scene_world import CATEGORIES, CONDITIONS, GRASSY, NEIGHBOURS, PATTERNS, SETTINGS, SIZES

THINGS = {1: 0.22, 2: 0.68, 3: 0.10}  # probability of each number of things
# weight of each fact in the draw of a neighbourhood's two varied facts
WEIGHTS = {"colour": 3.0, "count": 2.0, "pose": 2.0, "pattern": 0.5, "arrangement": 2.0, "colours": 1.5, "poses": 1.5}
LESS_SALIENT = 0.7  # factor of WEIGHTS for facts of the second thing
VALUES = ((4, 2), (3, 3), (2, 4))  # numbers of values of the two facts: eight combinations, or nine with one left out
ATTEMPTS = 30  # attempts with the same categories
SCALES = (1.0, 1.0, 0.92, 0.92, 0.85, 0.85, 0.78, 0.78)  # scales to try before resampling


class VariedFact(NamedTuple):
    """Fact in which the scenes or films of a neighbourhood differ, and its values there.

    A scene's fact is the colour, count, pose or pattern of a thing, or `arrangement`, the relation from the first thing
    to the second. `colours` and `poses` are True where the first two things have exchanged colours or poses. The
    exchange changes only the binding of attributes to things. A film's fact is the plan, side, gait or colour of an
    actor, or the story, or the order.
    """

    name: str
    thing: int  # index of the thing or actor; -1: the first two things of a scene, or the film
    values: tuple[Any, ...]

    def sample_values(self, rng: np.random.Generator, number: int) -> VariedFact:
        """Return the fact with `number` of its values, drawn at random."""
        return self._replace(values=tuple(self.values[i] for i in rng.permutation(len(self.values))[:number]))


def sample_scene(seed: int, index: int) -> Scene:
    """Return the facts of image `index` of the world `seed`."""
    return sample_scene_neighbourhood(seed, index // NEIGHBOURS)[index % NEIGHBOURS]


@lru_cache(maxsize=64)
def sample_scene_neighbourhood(seed: int, number: int) -> tuple[Scene, ...]:
    """Return NEIGHBOURS scenes of one setting, weather and light, with things of the same categories.

    Any two of the scenes differ in one or two of the varied facts. Positions, facing, and the facts that depend on
    positions differ at random. Raises RuntimeError if 1,000 attempts find no layout.
    """
    rng = make_generator(seed, number, 0)
    setting = pick(rng, tuple(SETTINGS))
    weather, light = pick(rng, tuple(CONDITIONS), tuple(CONDITIONS.values()))
    thing_count = pick(rng, tuple(THINGS), tuple(THINGS.values()))
    for attempt in range(1000):  # resample if things do not fit or cannot differ enough
        if attempt % ATTEMPTS == 0:
            names = _draw_categories(rng, setting, max(1, thing_count - attempt // (4 * ATTEMPTS)))
        things = [_sample_thing(rng, name, setting, is_first=i == 0) for i, name in enumerate(names)]
        arrangement = pick(rng, _list_arrangements(things)) if len(things) > 1 else ""
        varied_facts = _draw_varied_facts(rng, things)
        scenes: list[Scene] = []
        for values in list_combinations(rng, varied_facts):
            arranged_things = _apply_values(things, arrangement, varied_facts, values)
            scene = _lay_out(rng, setting, weather, light, *arranged_things)
            if scene is None:
                break
            scenes.append(replace(scene, neighbourhood=number))
        if len(scenes) == NEIGHBOURS:
            return tuple(scenes)
    raise RuntimeError(f"no layout for neighbourhood {number} of seed {seed} in 1,000 attempts; give another seed")


def _draw_categories(rng: np.random.Generator, setting: str, number: int) -> list[str]:
    names: dict[str, None] = {}  # a dict serves as an ordered set
    while len(names) < number:
        names[pick(rng, SETTINGS[setting])] = None
    return list(names)


def _sample_thing(rng: np.random.Generator, name: str, setting: str, is_first: bool) -> Thing:
    category = CATEGORIES[name]
    pose = pick(rng, [pose for pose in category.poses if pose != "grazing" or setting in GRASSY])
    count = min(category.max_count, pick(rng, (1, 2, 3), (0.60, 0.22, 0.18) if is_first else (0.86, 0.14, 0.0)))
    has_pattern = rng.random() < category.patterned
    return Thing(
        category=name,
        colour=pick(rng, category.colours),
        pattern=pick(rng, PATTERNS[1:]) if has_pattern else "plain",
        size=pick(rng, tuple(SIZES), (0.12, 0.50, 0.38)),
        count=count,
        pose=pose,
        place="water" if name == "boat" else "air" if pose == "flying" else "ground",
        facing=pick(rng, ("left", "right")),
    )


def _list_arrangements(things: Sequence[Thing]) -> tuple[str, ...]:
    """Return the possible arrangements: relations from the first thing to the second."""
    first_in_air, second_in_air = (thing.place == "air" for thing in things[:2])
    if first_in_air and second_in_air:
        return ("left_of", "right_of")
    if first_in_air:
        return ("left_of", "right_of", "above")
    if second_in_air:
        return ("left_of", "right_of", "below")
    return ("left_of", "right_of", "in_front_of", "behind")


def _draw_varied_facts(rng: np.random.Generator, things: Sequence[Thing]) -> list[VariedFact]:
    """Draw two facts in which the neighbourhood's scenes differ.

    Return [] if the same fact is drawn twice, or if the facts are dependent or have too few values.
    """
    possible_facts = list(_list_possible_facts(things))
    weights = [WEIGHTS[fact.name] * (LESS_SALIENT if fact.thing == 1 else 1.0) for fact in possible_facts]
    first, second = pick(rng, possible_facts, weights), pick(rng, possible_facts, weights)
    same = (first.name, first.thing) == (second.name, second.thing)
    # a colour and the exchange of colours, or a pose and the exchange of poses, are not independent
    dependent = first.thing != second.thing and -1 in (first.thing, second.thing) and first.name[:3] == second.name[:3]
    count_pairs = [(a, b) for a, b in VALUES if a <= len(first.values) and b <= len(second.values)]
    if not count_pairs or same or dependent:
        return []
    facts_with_counts = zip((first, second), pick(rng, count_pairs), strict=True)
    return [fact.sample_values(rng, count) for fact, count in facts_with_counts]


def _list_possible_facts(things: Sequence[Thing]) -> Iterator[VariedFact]:
    """Yield every fact of the first two things in which scenes can differ, with all its values."""
    for i, thing in enumerate(things[:2]):
        category = CATEGORIES[thing.category]
        yield VariedFact("colour", i, category.colours)
        yield VariedFact("count", i, tuple(range(1, category.max_count + 1)))
        yield VariedFact("pose", i, tuple(pose for pose in category.poses if _keeps_place(thing, pose)))
        yield VariedFact("pattern", i, PATTERNS if category.patterned else ("plain",))
    if len(things) > 1:
        a, b = things[:2]
        yield VariedFact("arrangement", -1, _list_arrangements(things))
        can_swap_colours = a.colour in CATEGORIES[b.category].colours and b.colour in CATEGORIES[a.category].colours
        if a.colour != b.colour and can_swap_colours:
            yield VariedFact("colours", -1, (False, True))
        can_swap_poses = b.pose in CATEGORIES[a.category].poses and a.pose in CATEGORIES[b.category].poses
        if a.pose != b.pose and can_swap_poses and a.place == b.place:
            yield VariedFact("poses", -1, (False, True))


def _keeps_place(thing: Thing, pose: str) -> bool:
    """Return whether `pose` keeps the thing's place (ground or air); only a thing that grazes already may graze."""
    return (pose == "flying") == (thing.place == "air") and (pose != "grazing" or thing.pose == "grazing")


def list_combinations(rng: np.random.Generator, varied_facts: Sequence[VariedFact]) -> list[tuple[Any, ...]]:
    """Return the values of the varied facts in each scene or film of a neighbourhood; [] without varied facts."""
    all_values = list(product(*(fact.values for fact in varied_facts))) if varied_facts else []
    return [all_values[i] for i in rng.permutation(len(all_values))[:NEIGHBOURS]]


def _apply_values(
    things: Sequence[Thing], arrangement: str, varied_facts: Sequence[VariedFact], values: Sequence[Any]
) -> tuple[list[Thing], str]:
    """Return the things and their arrangement with the given values of the varied facts."""
    new_things = list(things)
    for fact, value in zip(varied_facts, values, strict=True):
        if fact.name == "arrangement":
            arrangement = value
        elif fact.thing >= 0:
            new_things[fact.thing] = replace(new_things[fact.thing], **{fact.name: value})
        elif value:
            attribute = fact.name[:-1]
            first, second = (getattr(thing, attribute) for thing in new_things[:2])
            new_things[:2] = replace(new_things[0], **{attribute: second}), replace(new_things[1], **{attribute: first})
    return new_things, arrangement


def _lay_out(
    rng: np.random.Generator, setting: str, weather: str, light: str, things: Sequence[Thing], arrangement: str
) -> Scene | None:
    """Return a scene of these things in this arrangement; None if they do not fit."""
    has_boat = any(thing.place == "water" for thing in things)
    for scale in SCALES:
        horizon, shore = sample_horizon_and_shore(rng, setting, has_boat)
        turned_things = [replace(thing, facing=pick(rng, ("left", "right"))) for thing in things]
        placed_things = place_things(rng, turned_things, arrangement, horizon, shore, scale)
        if placed_things:
            break
    else:
        return None
    landmarks = choose_scenery(rng, setting, placed_things)
    # simulated annotators name people and animals before things, and large things before small ones
    placed_things.sort(
        key=lambda t: CATEGORIES[t.category].salience * (0.08 + sum(map(compute_area, t.boxes))), reverse=True
    )
    return Scene(setting, weather, light, horizon, shore, landmarks, tuple(placed_things))


def sample_horizon_and_shore(rng: np.random.Generator, setting: str, has_boat: bool) -> tuple[float, float]:
    """Return the y of a random horizon and shore, as fractions of the image; with a boat, more water is visible."""
    horizon = round(float(rng.uniform(0.42, 0.48)), DIGITS)
    depth = rng.uniform(0.24, 0.30) if has_boat else rng.uniform(0.09, 0.13)
    return horizon, round(horizon + float(depth), DIGITS) if setting in ("beach", "lake") else horizon


def choose_scenery(rng: np.random.Generator, setting: str, things: list[Thing]) -> dict[str, float]:
    """Return the landmarks of the setting with their x; a cactus or barn that things would hide is omitted."""
    constant = {"park": ["trees"], "street": ["buildings"], "snow": ["mountains"], "lake": ["trees"], "farm": ["fence"]}
    landmarks = {name: 0.5 for name in constant.get(setting, [])}
    half, height, name = {"desert": (0.10, 0.26, "cactus"), "farm": (0.14, 0.24, "barn")}.get(setting, (0, 0, ""))
    for _ in range(6 if name else 0):
        x = round(float(rng.uniform(half + 0.02, 0.98 - half)), DIGITS)
        if all(compute_overlap((x - half, 0.44 - height, x + half, 0.5), b) < 0.15 for t in things for b in t.boxes):
            landmarks[name] = x
            break
    return landmarks
