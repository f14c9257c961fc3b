"""Annotators: five captions a scene, each of which mentions some of the facts, and nothing that is not so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline.scenes import words as w
from pipeline.scenes.claims import Claim, related
from pipeline.scenes.facts import Scene, pick, stream
from pipeline.scenes.world import CATEGORIES

ALIVE = ("person", "child", "animal")
SHORTEST, LONGEST = 4, 13
FORMS = {  # how often each kind of sentence is tried
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


@dataclass(frozen=True)
class Plan:
    """What one annotator is going to mention: of whom, beside whom, and with which details."""

    first: int
    second: int  # -1: nobody else
    place: bool
    weather: bool
    colour: bool
    form: str
    details: dict[int, tuple[bool, bool, bool]] = field(default_factory=dict)  # size, pattern, colour of each thing


def describe(scene: Scene, seed: int, index: int, captions: int = 5) -> list[Description]:
    """`captions` different captions of image `index`."""
    rng = stream(seed, index, 2)
    written: list[Description] = []
    for _ in range(1000):
        plan = _plan(scene, rng)
        for _ in range(20):  # the same facts in other words, so that length decides nothing of what is mentioned
            caption = _write(scene, plan, rng)
            fresh = all(caption.raw != other.raw for other in written)
            if SHORTEST <= len(caption.tokens) <= LONGEST and fresh:
                written.append(caption)
                break
        if len(written) == captions:
            return written
    raise RuntimeError(f"no {captions} captions of scene {index} of seed {seed}")


def _plan(scene: Scene, rng: np.random.Generator) -> Plan:
    things = scene.things
    first, second = 0, -1
    if len(things) > 1:
        other = 1 if len(things) == 2 or rng.random() < 0.7 else 2
        if rng.random() < 0.52:
            first, second = (0, other) if rng.random() < 0.88 else (other, 0)
        elif rng.random() < 0.04:
            first = 1
    likely = {"sunny": 0.10, "cloudy": 0.17}.get(scene.weather, 0.29)
    place, weather, colour = rng.random() < 0.80, rng.random() < likely, rng.random() < 0.46
    forms = dict(FORMS)
    if not weather:
        del forms["weather"]
    if not place:
        del forms["scene"]
    if not place and not weather:
        del forms["fronted"]
    if not colour:
        del forms["coloured"]
    form = pick(rng, tuple(forms), tuple(forms.values()))
    details = {}
    for i in (first, second):
        share = 1.0 if i == 0 else 0.6
        main = colour if i == 0 else rng.random() < 0.27
        details[i] = (rng.random() < 0.16 * share, rng.random() < 0.34 * share, main)
    return Plan(first, second, place, weather, colour, form, details)


def _write(scene: Scene, plan: Plan, rng: np.random.Generator) -> Description:
    """One sentence that carries out `plan`."""
    mentioned = [i for i in (plan.first, plan.second) if i >= 0]
    place = _place(scene, mentioned, rng) if plan.place else Part()
    weather = _weather(scene, rng) if plan.weather else Part()
    form = plan.form
    if form == "coloured":
        subject = _noun_phrase(scene, plan, plan.first, rng, definite=True)
        verb = _verb(scene, [plan.first], rng) if rng.random() < 0.5 else Part()
        return _sentence(subject, verb, *_neighbour(scene, plan, rng), place, _is_coloured(scene, plan, subject, rng))
    if form == "scene":
        subject = _noun_phrase(scene, plan, plan.first, rng)
        setting = Part(pick(rng, w.SCENES[scene.setting]), (Claim("setting", scene.setting),))
        other = [Part("and"), _noun_phrase(scene, plan, plan.second, rng)] if plan.second >= 0 else []
        return _sentence(setting, Part("with"), subject, *other, weather)

    subject, actors = _noun_phrase(scene, plan, plan.first, rng), [plan.first]
    neighbour = _neighbour(scene, plan, rng)
    if neighbour and neighbour[0].text == "and":
        text = " ".join(part.text for part in (subject, *neighbour))
        subject = Part(text, (*subject.claims, *neighbour[1].claims), plural=True)
        neighbour, actors = [], mentioned
    verb = _verb(scene, actors, rng)
    be = Part("are" if subject.plural else "is")
    if form == "progressive":
        if not verb.text and not place.text:
            return _sentence(Part("there are"), subject, weather)
        if not verb.text:
            return _sentence(subject, be, place, weather)
        return _sentence(subject, be, verb, *neighbour, place, weather)
    if form == "existential":
        return _sentence(
            Part(f"there {be.text}"), subject, verb if rng.random() < 0.4 else Part(), *neighbour, place, weather
        )
    if form == "picture":
        doing = verb if rng.random() < 0.3 else Part()
        return _sentence(Part(pick(rng, w.PICTURES)), subject, doing, *neighbour, place, weather)
    if form == "fronted":
        front, rest = (place, weather) if place.text and (not weather.text or rng.random() < 0.6) else (weather, place)
        if not verb.text:
            return _sentence(front, Part(f"there {be.text}"), subject, *neighbour, rest)
        return _sentence(front, subject, be, verb, *neighbour, rest)
    if form == "weather":
        sky = Part(pick(rng, w.IT_IS[scene.weather, scene.light]), _sky_claims(scene))
        doing = verb if verb.text else place
        if not doing.text:
            return _sentence(sky, Part(f"and there {be.text}"), subject, *neighbour)
        return _sentence(sky, Part("and"), subject, be, doing, *neighbour, place if doing is verb else Part())
    doing = verb if form == "participle" else Part()
    return _sentence(subject, doing, *neighbour, place, weather)


def _sentence(*parts: Part) -> Description:
    text = " ".join(part.text for part in parts if part.text)
    claims = tuple(dict.fromkeys(claim for part in parts for claim in part.claims))
    return Description(text[0].upper() + text[1:] + ".", claims)


def _noun_phrase(scene: Scene, plan: Plan, i: int, rng: np.random.Generator, definite: bool = False) -> Part:
    """Thing `i` with its number and the details that `plan` chose: two small red cars, a man in a blue shirt."""
    thing = scene.things[i]
    kind = CATEGORIES[thing.category].kind
    nouns = [noun for noun in w.NOUNS[thing.category] if noun.size in ("", thing.size)]
    noun = pick(rng, nouns, [n.weight for n in nouns])
    claims = [Claim("kind", noun.kind, i) if noun.kind else Claim("category", thing.category, i)]
    if noun.size:
        claims.append(Claim("size", noun.size, i))
    size, pattern, colour = plan.details[i]
    adjectives, looks = [], []
    if size and thing.size != "medium" and not noun.size:
        adjectives.append(pick(rng, w.SIZES.get(kind, w.SIZES[""])[thing.size]))
        claims.append(Claim("size", thing.size, i))
    dressed = thing.category in w.GARMENTS
    if pattern and thing.pattern != "plain" and not (definite and dressed):
        looks.append(pick(rng, w.PATTERNS[thing.pattern]))
        claims.append(Claim("pattern", thing.pattern, i))
    if colour and not definite:
        looks.append(thing.colour)
        claims.append(Claim("colour", thing.colour, i))
    clothes = ""
    if not dressed:
        adjectives += looks
    elif looks:
        clothes = _clothes(thing.category, looks, thing.count, rng)
    plural = thing.count > 1
    name = " ".join([*adjectives, noun.plural if plural else noun.singular])
    if definite:
        claims.append(Claim("count", str(thing.count), i))
        many = {2: "two ", 3: "three "}.get(thing.count, "")
        return Part(f"the {many}{name}{clothes}", tuple(claims), plural)
    number, what, at, verb_plural = pick(rng, w.COUNTS[thing.count])
    claims.append(Claim(what, str(at), i))
    number = number if plural else article(name)
    return Part(f"{number} {name}{clothes}", tuple(claims), verb_plural)


def _clothes(category: str, looks: Sequence[str], count: int, rng: np.random.Generator) -> str:
    garment = pick(rng, w.GARMENTS[category])
    word = pick(rng, (" in", " in", " wearing"))
    described = " ".join([*looks, garment if count == 1 else w.GARMENT_PLURALS[garment]])
    return f"{word} {article(described)} {described}" if count == 1 else f"{word} {described}"


def article(words: str) -> str:
    """a or an, by the letter: no word of this world begins with a silent h or a spoken u."""
    return "an" if words[0] in "aeiou" else "a"


def _verb(scene: Scene, actors: Sequence[int], rng: np.random.Generator) -> Part:
    """What all `actors` are doing, if one word says it of every one of them."""
    if len({CATEGORIES[scene.things[i].category].kind in ALIVE for i in actors}) > 1:
        return Part()  # nobody says that a man and a house are standing
    options: list[str] = []
    for n, i in enumerate(actors):
        thing = scene.things[i]
        kind = CATEGORIES[thing.category].kind
        kind = "person" if kind == "child" else kind
        mine = next(
            w.VERBS[key]
            for key in (f"{thing.category}:{thing.pose}", f"{kind}:{thing.pose}", thing.pose)
            if key in w.VERBS
        )
        options = list(mine) if n == 0 else [verb for verb in options if verb in mine]
    if not options:
        return Part()
    return Part(pick(rng, options), tuple(Claim("pose", scene.things[i].pose, i) for i in actors))


def _neighbour(scene: Scene, plan: Plan, rng: np.random.Generator) -> list[Part]:
    """How the first thing stands to the second, and the second; nothing where the plan has no second."""
    if plan.second < 0:
        return []
    a, b = scene.things[plan.first], scene.things[plan.second]
    alike = (CATEGORIES[a.category].kind in ALIVE) == (CATEGORIES[b.category].kind in ALIVE)
    odd = set()
    if plan.form == "coloured":
        odd.add("and")  # the colour would be said of both
    if not alike and plan.form != "verbless":
        odd.add("with")  # nobody walks with a house
    true = [
        (text, relation, weight)
        for text, relation, weight in w.RELATIONS
        if text not in odd and (not relation or related(relation, a, b))
    ]
    if not true:
        return []
    text, relation, _ = pick(rng, true, [weight for *_, weight in true])
    claims = (Claim("relation", relation, plan.first, plan.second),) if relation else ()
    return [Part(text, claims), _noun_phrase(scene, plan, plan.second, rng)]


def _is_coloured(scene: Scene, plan: Plan, subject: Part, rng: np.random.Generator) -> Part:
    """is brown, are brown, is wearing a red shirt."""
    thing = scene.things[plan.first]
    claims = (Claim("colour", thing.colour, plan.first),)
    be = "are" if subject.plural else "is"
    if thing.category not in w.GARMENTS:
        return Part(f"{be} {thing.colour}", claims)
    return Part(f"{be}{_clothes(thing.category, [thing.colour], thing.count, rng)}", claims)


def _place(scene: Scene, mentioned: Sequence[int], rng: np.random.Generator) -> Part:
    """Where the scene is, in words that are true of everything mentioned."""
    where = {scene.things[i].place[0] for i in mentioned}
    options = [
        place
        for place in w.PLACES[scene.setting]
        if where <= set(place[1]) and (not place[2] or place[2] in scene.scenery)
    ]
    text, said, landmark = pick(rng, options)
    claims = [Claim("setting", scene.setting)]
    if landmark:
        claims.append(Claim("scenery", landmark))
    if len(said) == 1:
        claims += [Claim("place", scene.things[i].place, i) for i in mentioned]
    return Part(text, tuple(claims))


def _sky_claims(scene: Scene) -> tuple[Claim, ...]:
    return (Claim("weather", scene.weather) if scene.light == "day" else Claim("light", scene.light),)


def _weather(scene: Scene, rng: np.random.Generator) -> Part:
    return Part(pick(rng, w.WEATHER[scene.weather, scene.light]), _sky_claims(scene))
