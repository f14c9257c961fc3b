"""What can truly be answered to a question, in all the words of all people, and what one of them says."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from pipeline.scenes import words as w
from pipeline.scenes.dialogs.words import (
    ATMOSPHERES,
    GUESSES,
    HEDGES,
    KINDS,
    LIGHTS,
    MARKS,
    NUMBERS,
    SIZED,
    article,
    be,
    doing,
    garment,
    is_worn,
    noun,
    plural,
    pronoun,
    side,
)
from pipeline.scenes.facts import Scene, Thing, atmosphere, pick, related
from pipeline.scenes.world import CATEGORIES

Weighted = list[tuple[str, float]]
YES, NO = ("yes", "yeah", "yep"), ("no", "nope")
STYLES = ((0.88, 0.10, 0.02), (0.40, 0.45, 0.15), (0.06, 0.34, 0.60))  # shares of short, longer and whole answers
GUESSED, HEDGED = 0.4, 0.2  # relevance of a guess where nobody can know, and of a hedge where one can


@dataclass(frozen=True)
class Question:
    """What is asked: of thing `of`, −1: of the scene, for the value `asked`; `refers`: how the thing is named."""

    kind: str
    text: str
    of: int = -1
    asked: str = ""
    refers: str = "none"  # none, name, pronoun or ellipsis
    unmentioned: tuple[int, ...] = ()  # of "anything else": things that nobody has named yet


@dataclass(frozen=True)
class Person:
    """How somebody answers, throughout a dialog."""

    style: int  # an index of STYLES
    yes: str
    no: str
    digits: bool  # 2 or two
    grey: bool  # or gray
    hedges: float  # the share of answers that say nothing

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Person:
        return cls(
            style=pick(rng, (0, 1, 2), (0.45, 0.30, 0.25)),
            yes=pick(rng, YES, (0.75, 0.15, 0.10)),
            no=pick(rng, NO, (0.85, 0.15)),
            digits=rng.random() < 0.5,
            grey=rng.random() < 0.3,
            hedges=pick(rng, (0.01, 0.04, 0.10), (0.5, 0.3, 0.2)),
        )


class Meaning(NamedTuple):
    """True answers: the shortest, longer ones (after a yes or no: what is said after it), and whole sentences."""

    short: str  # yes and no stand for anybody's word for it
    longer: tuple[str, ...]
    whole: tuple[str, ...]


def say(rng: np.random.Generator, scene: Scene, question: Question, person: Person) -> str:
    """What `person` answers."""
    if question.kind in GUESSES and rng.random() < 0.4:
        return _own(pick(rng, GUESSES[question.kind]), person)
    if question.kind in GUESSES or rng.random() < person.hedges:
        return pick(rng, HEDGES)
    options = replies(meaning(scene, question, person.digits, person.grey), person)
    return pick(rng, [text for text, _ in options], [weight for _, weight in options])


def relevance(scene: Scene, question: Question) -> dict[str, float]:
    """How right each answer is that anybody may give: 1 where it is true, 0 for all other texts.

    Where nobody can know, that is what hedges are, and guesses are GUESSED; elsewhere hedges are HEDGED.
    """
    if question.kind in GUESSES:
        guesses = {_own(text, person): GUESSED for text in GUESSES[question.kind] for person in WORDINGS}
        return guesses | dict.fromkeys(HEDGES, 1.0)
    found = dict.fromkeys(HEDGES, HEDGED)
    for digits, grey in product((False, True), repeat=2):
        meant = meaning(scene, question, digits, grey)
        for person in WORDINGS:
            found |= {text: 1.0 for text, _ in replies(meant, person)}
    return found


def replies(meant: Meaning, person: Person) -> Weighted:
    """All that `person` may say who means that, with weights."""
    short, longer, whole = STYLES[person.style]
    head = _own(meant.short, person)
    after = [f"{head} {text}" if meant.short in ("yes", "no") else text for text in meant.longer]
    found = [(head, short)] + [(text, longer / len(after)) for text in after]
    return found + [(text, whole / len(meant.whole)) for text in meant.whole]


def _own(text: str, person: Person) -> str:
    return {"yes": person.yes, "no": person.no}.get(text, text)


WORDINGS = tuple(
    Person(1, yes, no, False, False, 0.0) for yes, no in ((YES[0], NO[0]), (YES[1], NO[1]), (YES[2], NO[0]))
)


def meaning(scene: Scene, question: Question, digits: bool = False, grey: bool = False) -> Meaning:
    """What is true; ValueError for a kind of question whose answer no scene has."""
    kind, asked = question.kind, question.asked
    if question.of >= 0:
        return _of_thing(scene, scene.things[question.of], kind, asked, digits, grey)
    if kind == "exist":
        return _existing([t for t in scene.things if t.category == asked], plural(asked), digits, grey)
    if kind == "exist_kind":
        return _existing(of_kind(scene, asked), asked, digits, grey)
    if kind == "else":
        return _existing([scene.things[i] for i in question.unmentioned], "", digits, grey)
    if kind == "total":
        number = sum(thing.count for thing in of_kind(scene, asked))
        n = NUMBERS[not digits][number] if number else "none"
        there = "is" if number == 1 else "are"
        return Meaning(n, (f"i see {n}", f"just {n}"), (f"there {there} {n}", f"i can see {n}"))
    if kind == "weather":
        short, whole, *longer = ATMOSPHERES[atmosphere(scene)]
        return Meaning(short, tuple(longer), (whole,))
    if kind == "is_weather":
        whole = ATMOSPHERES[atmosphere(scene)][1]
        if atmosphere(scene) == asked:
            return Meaning("yes", ("it is", "it looks like it"), (whole, "it looks like it"))
        return Meaning("no", ("it isn't", whole), (whole, "it doesn't look like it"))
    if kind == "light":
        short, *longer, whole = LIGHTS[scene.light]
        return Meaning(short, tuple(longer), (whole,))
    place, at = w.SCENES[scene.setting][0], w.PLACES[scene.setting][0].text
    if kind == "setting":
        return Meaning(at, (place, f"{at} i think"), (f"it is {at}", f"it looks like {place}"))
    if kind == "is_setting":
        if asked == place:
            return Meaning("yes", ("it is", "it looks like it"), (f"it is {at}", "it looks like it"))
        return Meaning("no", ("it isn't", f"it is {at}"), (f"it is {at}", f"it looks more like {place}"))
    if kind == "scenery":
        if asked in scene.scenery:
            return Meaning("yes", ("there are some", "in the background"), ("in the background", "i see some"))
        return Meaning("no", ("i don't see any", "there are none"), ("not that i can see", "i don't see any"))
    if kind == "outdoors":
        return Meaning("outside", ("outdoors", "outside i think"), ("it is outside", "it is outdoors"))
    raise ValueError(kind)


def of_kind(scene: Scene, name: str) -> list[Thing]:
    """The things that are people, children, animals or vehicles."""
    return [thing for thing in scene.things if CATEGORIES[thing.category].kind in KINDS[name]]


def _of_thing(scene: Scene, thing: Thing, kind: str, asked: str, digits: bool, grey: bool) -> Meaning:
    it, is_, colour = pronoun(thing), be(thing), _colour(thing, grey)
    if kind in ("colour", "is_colour"):
        verb = f"{is_} wearing" if is_worn(thing) else is_
        whole = (f"{it} {verb} {colour}", f"the {noun(thing)} {verb} {colour}")
        if kind == "colour":
            marks = {"plain": (), "striped": (f"{colour} with stripes",), "spotted": (f"{colour} with spots",)}
            return Meaning(colour, (f"looks {colour}", f"{colour} i think", *marks[thing.pattern]), whole)
        if thing.colour == asked:
            return Meaning("yes", (f"{it} {is_}", f"all {colour}"), (f"{it} {is_}", whole[0]))
        return Meaning("no", (colour, whole[0]), (whole[0], f"more like {colour}"))
    if kind == "count":
        n = NUMBERS[not digits][thing.count]
        return Meaning(n, (f"i see {n}", f"just {n}"), (f"there {is_} {n}", f"i can see {n}"))
    if kind in ("pose", "is_pose"):
        verb = doing(thing.category, thing.pose)
        if kind == "pose":
            return Meaning(verb, (f"just {verb}", f"{verb} i think"), (f"{it} {is_} {verb}", f"{it} {is_} just {verb}"))
        if thing.pose == asked:
            return Meaning(
                "yes", (f"{it} {is_}", f"{it} {is_} {verb}"), (f"{it} {is_} {verb}", f"looks like {it} {is_}")
            )
        return Meaning("no", (verb, f"{it} {is_} {verb}"), (f"{it} {is_} {verb}", f"{it} {is_} just {verb}"))
    if kind == "size":
        short, *longer = SIZED[thing.size]
        return Meaning(short, tuple(longer), (f"{it} {is_} {short}", f"{it} {is_} {longer[0]}"))
    if kind == "pattern":
        if thing.pattern == asked:
            return Meaning(
                "yes", (f"i see {MARKS[asked]}", MARKS[asked]), (f"i see {MARKS[asked]}", f"it has {MARKS[asked]}")
            )
        own = "plain" if thing.pattern == "plain" else MARKS[thing.pattern]
        return Meaning("no", (own, f"just {own}"), (f"just {own}", f"no {MARKS[asked]}"))
    if kind == "facing":
        return Meaning(
            thing.facing, (f"to the {thing.facing}", f"looking {thing.facing}"), (f"{it} {is_} facing {thing.facing}",)
        )
    if kind == "side":
        here = side(thing)
        at = "in the middle" if here == "middle" else f"on the {here}"
        return Meaning(here, (at, f"more {at}"), (f"{it} {is_} {at}", f"{at} of the picture"))
    if kind == "near":
        others = [o for o in scene.things if o is not thing and related("near", thing, o)]
        if not others:
            return Meaning(
                "nothing", ("nothing really", "just the ground"), ("there is nothing", "nothing that i can see")
            )
        names = [_phrase(o, digits, grey, coloured) for o in others for coloured in (False, True)]
        return Meaning(names[0], tuple(names[1:]), tuple(f"i see {name}" for name in names))
    if kind == "which":
        plain, coloured = _phrase(thing, digits, grey, False), _phrase(thing, digits, grey, True)
        return Meaning(noun(thing), (plain, coloured), (f"i see {plain}", f"{it} {is_} {plain}"))
    raise ValueError(kind)


def _existing(things: list[Thing], name: str, digits: bool, grey: bool) -> Meaning:
    """Whether there are any of these; `name`: what was asked for, empty: anything else."""
    if not things:
        if name:
            return Meaning("no", ("i don't see any", "there aren't any"), ("not that i can see", f"no {name}"))
        return Meaning("no", ("that's it", "nothing else"), ("that's all", "nothing else"))
    names = [_phrase(thing, digits, grey, coloured) for thing in things for coloured in (False, True)]
    verbs = [be(thing) for thing in things for _ in range(2)]
    whole = [f"there {verb} {text}" for verb, text in zip(verbs, names, strict=True)]
    return Meaning("yes", tuple(names), (*whole, *(f"i see {text}" for text in names)))


def _phrase(thing: Thing, digits: bool, grey: bool, coloured: bool) -> str:
    """A thing as it is named for the first time: a dog, 2 red cars."""
    name = noun(thing)
    if coloured and is_worn(thing):
        worn = f"{_colour(thing, grey)} {garment(thing)}"
        name = f"{name} in {article(worn) if thing.count == 1 else worn}"
    elif coloured:
        name = f"{_colour(thing, grey)} {name}"
    return article(name) if thing.count == 1 else f"{NUMBERS[not digits][thing.count]} {name}"


def _colour(thing: Thing, grey: bool) -> str:
    return "grey" if thing.colour == "gray" and grey else thing.colour
