"""Annotators: five captions per scene, each of which mentions some of its facts and nothing that is false."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.scenes import words as w
from pipeline.scenes.facts import Scene, pick, related, stream
from pipeline.scenes.world import CATEGORIES

ALIVE = ("person", "child", "animal")
SHORTEST, LONGEST = 4, 15
FORMS = {  # relative probability of each kind of sentence
    "participle": 0.24,  # a dog running on the beach
    "progressive": 0.18,  # a dog is running on the beach
    "verbless": 0.12,  # a dog on the beach
    "existential": 0.10,  # there is a dog on the beach
    "picture": 0.08,  # a photo of a dog on the beach
    "fronted": 0.07,  # on the beach a dog is running
    "coloured": 0.07,  # the dog on the beach is brown
    "scene": 0.07,  # a beach with a dog and a tent
    "weather": 0.07,  # it is raining and a dog is running
}


Details = dict[int, tuple[bool, bool, bool]]
"""Whether the size, the pattern and the colour of a thing are mentioned, by its number."""


class Claim(NamedTuple):
    """One statement; `of` and `to` are indices into `Scene.things`, -1 where the claim is about the scene."""

    what: str
    value: str
    of: int = -1
    to: int = -1


@dataclass(frozen=True)
class Description:
    """One annotator's sentence and everything that it claims."""

    raw: str
    claims: tuple[Claim, ...]

    @property
    def tokens(self) -> list[str]:
        """Lower-case words without punctuation."""
        return re.findall(r"[a-z]+", self.raw.lower())


@dataclass(frozen=True)
class Part:
    """Some words of a sentence, what they claim, and whether a verb after them is plural."""

    text: str = ""
    claims: tuple[Claim, ...] = ()
    plural: bool = False


class Mood(NamedTuple):
    """How much an annotator says; the probabilities are of what a caption names."""

    share: float  # of the captions
    second: float  # another thing
    place: float
    weather: float  # unusual weather, night or sunset; what is usual is named less often
    colour: float  # of the first thing; what is less salient is named less often


MOODS = (Mood(0.3, 0.35, 0.85, 0.75, 0.35), Mood(0.4, 0.65, 0.95, 0.9, 0.55), Mood(0.3, 0.95, 1.0, 1.0, 0.85))


@dataclass(frozen=True)
class Plan:
    """What one annotator is going to mention: which things, and which details of them."""

    first: int  # index into `Scene.things`
    second: int  # the same; -1: none
    place: bool
    weather: bool
    colour: bool
    form: str
    details: Details


def describe(scene: Scene, seed: int, index: int, captions: int = 5) -> list[Description]:
    """`captions` different captions of `scene`, which is image `index`; they depend on the three arguments alone."""
    rng = stream(seed, index, 2)
    written: list[Description] = []
    for _ in range(1000):
        plan = _plan(scene, rng)
        for _ in range(20):  # the same facts in other words, so that the limits on length do not bias the facts
            caption = _write(scene, plan, rng)
            fresh = all(caption.raw != other.raw for other in written)
            if SHORTEST <= len(caption.tokens) <= LONGEST and fresh:
                written.append(caption)
                break
        if len(written) == captions:
            return written
    raise RuntimeError(f"no {captions} captions of scene {index} of seed {seed}")


def _plan(scene: Scene, rng: np.random.Generator) -> Plan:
    things, mood = scene.things, pick(rng, MOODS, [mood.share for mood in MOODS])
    first, second = 0, -1
    if len(things) > 1:
        other = 1 if len(things) == 2 or rng.random() < 0.7 else 2
        if rng.random() < mood.second:
            first, second = (0, other) if rng.random() < 0.88 else (other, 0)
        elif rng.random() < 0.04:
            first = 1
    usual = {"sunny": 0.3, "cloudy": 0.6}.get(scene.weather, 1.0)
    place, weather = rng.random() < mood.place, rng.random() < mood.weather * usual
    colour = rng.random() < mood.colour
    possible = {"weather": weather, "scene": place, "fronted": place or weather, "coloured": colour}
    forms = {form: share for form, share in FORMS.items() if possible.get(form, True)}
    form = pick(rng, tuple(forms), tuple(forms.values()))
    details = {}
    for i in (first, second):  # of what is less salient people say less
        share = 1.0 if i == 0 else 0.75
        details[i] = (
            rng.random() < 0.16 * share,
            rng.random() < 0.6 * mood.colour * share,
            colour if i == 0 else rng.random() < mood.colour * share,
        )
    return Plan(first, second, place, weather, colour, form, details)


def _write(scene: Scene, plan: Plan, rng: np.random.Generator) -> Description:
    """One sentence that carries out `plan`."""
    mentioned = [i for i in (plan.first, plan.second) if i >= 0]
    place = place_phrase(scene, mentioned, rng) if plan.place else Part()
    weather = sky_phrase(w.WEATHER, scene, rng) if plan.weather else Part()
    form = plan.form
    if form == "coloured":
        subject = noun_phrase(scene, plan.details, plan.first, rng, definite=True)
        verb = _verb(scene, [plan.first], rng) if rng.random() < 0.6 else Part()
        return sentence(subject, verb, *_neighbour(scene, plan, rng), place, _is_coloured(scene, plan, subject, rng))
    if form == "scene":
        subject = noun_phrase(scene, plan.details, plan.first, rng)
        setting = Part(pick(rng, w.SCENES[scene.setting]), (Claim("setting", scene.setting),))
        if plan.second >= 0:
            return sentence(
                setting, Part("with"), subject, Part("and"), noun_phrase(scene, plan.details, plan.second, rng), weather
            )
        verb = _verb(scene, [plan.first], rng) if rng.random() < 0.5 else Part()
        return sentence(setting, Part("with"), subject, verb, weather)

    subject, actors = noun_phrase(scene, plan.details, plan.first, rng), [plan.first]
    neighbour = _neighbour(scene, plan, rng)
    if neighbour and neighbour[0].text == "and":
        text = " ".join(part.text for part in (subject, *neighbour))
        subject = Part(text, (*subject.claims, *neighbour[1].claims), plural=True)
        neighbour, actors = [], mentioned
    verb = _verb(scene, actors, rng)
    be = _be(subject)
    there = Part(f"there {be.text}")
    if form == "progressive":
        if not verb.text and not place.text:
            return sentence(there, subject, weather)
        return sentence(subject, be, verb, *neighbour, place, weather)
    if form == "existential":
        doing = verb if rng.random() < 0.7 else Part()
        return sentence(there, subject, doing, *neighbour, place, weather)
    if form == "picture":
        doing = verb if rng.random() < 0.6 else Part()
        return sentence(Part(pick(rng, w.PICTURES)), subject, doing, *neighbour, place, weather)
    if form == "fronted":
        front, rest = (place, weather) if place.text and (not weather.text or rng.random() < 0.6) else (weather, place)
        if not verb.text:
            return sentence(front, there, subject, *neighbour, rest)
        return sentence(front, subject, be, verb, *neighbour, rest)
    if form == "weather":
        clause = [sky_phrase(w.IT_IS, scene, rng), Part("and")]
        if not verb.text and not place.text:
            return sentence(*clause, there, subject, *neighbour)
        return sentence(*clause, subject, be, *([verb, *neighbour, place] if verb.text else [place, *neighbour]))
    doing = verb if form == "participle" else Part()
    return sentence(subject, doing, *neighbour, place, weather)


def _be(subject: Part) -> Part:
    return Part("are" if subject.plural else "is")


def sentence(*parts: Part) -> Description:
    """The parts one after the other, and all that they claim."""
    text = " ".join(part.text for part in parts if part.text)
    claims = tuple(dict.fromkeys(claim for part in parts for claim in part.claims))
    return Description(text[0].upper() + text[1:] + ".", claims)


def noun_phrase(scene: Scene, details: Details, i: int, rng: np.random.Generator, definite: bool = False) -> Part:
    """Thing `i` with its number and the details that were chosen: two small red cars, a man in a blue shirt."""
    thing = scene.things[i]
    kind = CATEGORIES[thing.category].kind
    nouns = [noun for noun in w.NOUNS[thing.category] if noun.size in ("", thing.size)]
    noun = pick(rng, nouns, [n.weight for n in nouns])
    claims = [Claim("kind", noun.kind, i) if noun.kind else Claim("category", thing.category, i)]
    if noun.size:
        claims.append(Claim("size", noun.size, i))
    size, pattern, colour = details[i]
    adjectives, appearance = [], []  # people: `appearance` is of the clothes
    if size and thing.size != "medium" and not noun.size:
        adjectives.append(pick(rng, w.SIZES.get(kind, w.SIZES[""])[thing.size]))
        claims.append(Claim("size", thing.size, i))
    dressed = thing.category in w.GARMENTS
    if pattern and thing.pattern != "plain" and not (definite and dressed):
        appearance.append(pick(rng, w.PATTERNS[thing.pattern]))
        claims.append(Claim("pattern", thing.pattern, i))
    if colour and not definite:
        appearance.append(thing.colour)
        claims.append(Claim("colour", thing.colour, i))
    clothes = _clothes(thing.category, appearance, thing.count, rng) if dressed and appearance else ""
    adjectives += [] if dressed else appearance
    plural = thing.count > 1
    name = " ".join([*adjectives, noun.plural if plural else noun.singular])
    if definite:
        number, what, at, verb_plural = ("the", "the two", "the three")[thing.count - 1], "count", thing.count, plural
    else:
        number, what, at, verb_plural = pick(rng, w.COUNTS[thing.count])
        number = number if plural else article(name)
    return Part(f"{number} {name}{clothes}", (*claims, Claim(what, str(at), i)), verb_plural)


def _clothes(category: str, appearance: Sequence[str], count: int, rng: np.random.Generator) -> str:
    garment = pick(rng, w.GARMENTS[category])
    word = pick(rng, (" in", " in", " wearing"))
    described = " ".join([*appearance, garment if count == 1 else w.GARMENT_PLURALS[garment]])
    return f"{word} {article(described)} {described}" if count == 1 else f"{word} {described}"


def article(words: str) -> str:
    """a or an, by the letter: no word of this world begins with a silent h or a spoken u."""
    return "an" if words[0] in "aeiou" else "a"


def _verb(scene: Scene, actors: Sequence[int], rng: np.random.Generator) -> Part:
    """What all `actors` are doing, if one verb is true of all of them; else an empty part."""
    if len({CATEGORIES[scene.things[i].category].kind in ALIVE for i in actors}) > 1:
        return Part()  # people do not say that a man and a house are standing
    verbs = []
    for thing in (scene.things[i] for i in actors):
        kind = CATEGORIES[thing.category].kind.replace("child", "person")
        keys = (f"{thing.category}:{thing.pose}", f"{kind}:{thing.pose}", thing.pose)
        verbs.append(next(w.VERBS[key] for key in keys if key in w.VERBS))
    options = [verb for verb in verbs[0] if all(verb in others for others in verbs)]
    claims = tuple(Claim("pose", scene.things[i].pose, i) for i in actors)
    return Part(pick(rng, options), claims) if options else Part()


def _neighbour(scene: Scene, plan: Plan, rng: np.random.Generator) -> list[Part]:
    """How the first thing relates to the second, and the second; nothing where the plan has no second."""
    if plan.second < 0:
        return []
    a, b = scene.things[plan.first], scene.things[plan.second]
    alike = (CATEGORIES[a.category].kind in ALIVE) == (CATEGORIES[b.category].kind in ALIVE)
    odd = {"and"} if plan.form == "coloured" else set()  # the colour would be said of both
    if not alike and plan.form != "verbless":
        odd.add("with")  # people do not walk with a house
    true = [r for r in w.RELATIONS if r[0] not in odd and (not r[1] or related(r[1], a, b))]
    if not true:
        return []
    text, relation, _ = pick(rng, true, [weight for *_, weight in true])
    claims = (Claim("relation", relation, plan.first, plan.second),) if relation else ()
    return [Part(text, claims), noun_phrase(scene, plan.details, plan.second, rng)]


def _is_coloured(scene: Scene, plan: Plan, subject: Part, rng: np.random.Generator) -> Part:
    """is brown, are brown, is wearing a red shirt."""
    thing = scene.things[plan.first]
    dressed = thing.category in w.GARMENTS
    colour = _clothes(thing.category, [thing.colour], thing.count, rng) if dressed else f" {thing.colour}"
    return Part(f"{_be(subject).text}{colour}", (Claim("colour", thing.colour, plan.first),))


def place_phrase(scene: Scene, mentioned: Sequence[int], rng: np.random.Generator) -> Part:
    """Where the scene is, in words that are true of everything mentioned."""
    where = {scene.things[i].place[0] for i in mentioned}
    options = [p for p in w.PLACES[scene.setting] if where <= set(p.where) and p.landmark in ("", *scene.scenery)]
    place = pick(rng, options)
    claims = [Claim("setting", scene.setting)]
    if place.landmark:
        claims.append(Claim("scenery", place.landmark))
    if len(place.where) == 1:
        claims += [Claim("place", scene.things[i].place, i) for i in mentioned]
    return Part(place.text, tuple(claims))


def sky_phrase(words: dict[tuple[str, str], tuple[str, ...]], scene: Scene, rng: np.random.Generator) -> Part:
    """The weather by day, else the light, in some of `words`."""
    claim = Claim("weather", scene.weather) if scene.light == "day" else Claim("light", scene.light)
    return Part(pick(rng, words[scene.weather, scene.light]), (claim,))
