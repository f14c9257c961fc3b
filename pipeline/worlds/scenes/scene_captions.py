"""Simulated annotators: five captions per scene, each with some of the scene's facts and nothing false."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.worlds.scenes import scene_words as w
from pipeline.worlds.scenes.scene_facts import Scene, make_generator, pick, relation_holds
from pipeline.worlds.scenes.scene_world import CATEGORIES

ALIVE = ("person", "child", "animal")
MIN_WORDS, MAX_WORDS = 4, 15  # words of a caption
FORMS = {  # relative probability of each sentence form
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
"""Whether to mention a thing's size, pattern and colour, by the thing's index."""


class SceneClaim(NamedTuple):
    """Claim of a caption about a thing, a pair of things, or the scene; things are indices into `Scene.things`."""

    kind: str
    value: str
    thing: int = -1  # -1: the claim is about the scene
    other: int = -1  # second thing of a relation; -1: none


@dataclass(frozen=True)
class SceneCaption:
    """Sentence of one simulated annotator, with all its claims."""

    raw: str
    claims: tuple[SceneClaim, ...]

    @property
    def tokens(self) -> list[str]:
        """Return the lower-case words without punctuation."""
        return re.findall(r"[a-z]+", self.raw.lower())


@dataclass(frozen=True)
class Phrase:
    """Words of a sentence with their claims; with `plural`, a following verb is plural."""

    text: str = ""
    claims: tuple[SceneClaim, ...] = ()
    plural: bool = False


class AnnotatorStyle(NamedTuple):
    """Probabilities with which a simulated annotator mentions facts."""

    share: float  # share of captions in this style
    second: float  # probability of a second thing
    place: float  # probability of the place
    weather: float  # probability of unusual weather, night or sunset; usual weather is mentioned less often
    colour: float  # probability of the first thing's colour; less salient things are described less often


STYLES = (
    AnnotatorStyle(0.3, 0.35, 0.85, 0.75, 0.35),
    AnnotatorStyle(0.4, 0.65, 0.95, 0.9, 0.55),
    AnnotatorStyle(0.3, 0.95, 1.0, 1.0, 0.85),
)


@dataclass(frozen=True)
class CaptionPlan:
    """Plan of a caption: the things and details that it mentions."""

    first: int  # index into `Scene.things`
    second: int  # index of the second thing; -1: none
    place: bool
    weather: bool
    colour: bool
    form: str
    details: Details


def describe_scene(scene: Scene, seed: int, index: int, captions: int = 5) -> list[SceneCaption]:
    """Return `captions` distinct captions of `scene`, which is image `index`; they depend on the arguments alone.

    Raises RuntimeError if 1,000 attempts yield too few.
    """
    rng = make_generator(seed, index, 2)
    sentences: list[SceneCaption] = []
    for _ in range(1000):
        plan = _draw_plan(scene, rng)
        for _ in range(20):  # rephrase the same facts, so that the length limits do not bias the facts
            caption = _compose_caption(scene, plan, rng)
            is_new = all(caption.raw != other.raw for other in sentences)
            if MIN_WORDS <= len(caption.tokens) <= MAX_WORDS and is_new:
                sentences.append(caption)
                break
        if len(sentences) == captions:
            return sentences
    raise RuntimeError(
        f"scene {index} of seed {seed}: expected {captions} distinct captions, got {len(sentences)}; ask for fewer"
    )


def _draw_plan(scene: Scene, rng: np.random.Generator) -> CaptionPlan:
    things, style = scene.things, pick(rng, STYLES, [style.share for style in STYLES])
    first, second = 0, -1
    if len(things) > 1:
        other = 1 if len(things) == 2 or rng.random() < 0.7 else 2
        if rng.random() < style.second:
            first, second = (0, other) if rng.random() < 0.88 else (other, 0)
        elif rng.random() < 0.04:
            first = 1
    weather_factor = {"sunny": 0.3, "cloudy": 0.6}.get(scene.weather, 1.0)
    place, weather = rng.random() < style.place, rng.random() < style.weather * weather_factor
    colour = rng.random() < style.colour
    conditions = {"weather": weather, "scene": place, "fronted": place or weather, "coloured": colour}
    forms = {form: share for form, share in FORMS.items() if conditions.get(form, True)}
    form = pick(rng, tuple(forms), tuple(forms.values()))
    details = {}
    for i in (first, second):  # less salient things are described with fewer details
        share = 1.0 if i == 0 else 0.75
        details[i] = (
            rng.random() < 0.16 * share,
            rng.random() < 0.6 * style.colour * share,
            colour if i == 0 else rng.random() < style.colour * share,
        )
    return CaptionPlan(first, second, place, weather, colour, form, details)


def _compose_caption(scene: Scene, plan: CaptionPlan, rng: np.random.Generator) -> SceneCaption:
    """Return one sentence with the content of `plan`."""
    mentioned_things = [i for i in (plan.first, plan.second) if i >= 0]
    place = compose_place_phrase(scene, mentioned_things, rng) if plan.place else Phrase()
    weather = compose_sky_phrase(w.WEATHER, scene, rng) if plan.weather else Phrase()
    form = plan.form
    if form == "coloured":
        subject = compose_noun_phrase(scene, plan.details, plan.first, rng, definite=True)
        verb = _describe_action(scene, [plan.first], rng) if rng.random() < 0.6 else Phrase()
        second = _describe_second_thing(scene, plan, rng)
        return compose_sentence(subject, verb, *second, place, _describe_colour(scene, plan, subject, rng))
    if form == "scene":
        subject = compose_noun_phrase(scene, plan.details, plan.first, rng)
        setting = Phrase(pick(rng, w.SCENES[scene.setting]), (SceneClaim("setting", scene.setting),))
        if plan.second >= 0:
            return compose_sentence(
                setting,
                Phrase("with"),
                subject,
                Phrase("and"),
                compose_noun_phrase(scene, plan.details, plan.second, rng),
                weather,
            )
        verb = _describe_action(scene, [plan.first], rng) if rng.random() < 0.5 else Phrase()
        return compose_sentence(setting, Phrase("with"), subject, verb, weather)

    subject, actors = compose_noun_phrase(scene, plan.details, plan.first, rng), [plan.first]
    second = _describe_second_thing(scene, plan, rng)
    if second and second[0].text == "and":
        text = " ".join(part.text for part in (subject, *second))
        subject = Phrase(text, (*subject.claims, *second[1].claims), plural=True)
        second, actors = [], mentioned_things
    verb = _describe_action(scene, actors, rng)
    be = _conjugate_be(subject)
    there_is = Phrase(f"there {be.text}")
    if form == "progressive":
        if not verb.text and not place.text:
            return compose_sentence(there_is, subject, weather)
        return compose_sentence(subject, be, verb, *second, place, weather)
    if form == "existential":
        action = verb if rng.random() < 0.7 else Phrase()
        return compose_sentence(there_is, subject, action, *second, place, weather)
    if form == "picture":
        action = verb if rng.random() < 0.6 else Phrase()
        return compose_sentence(Phrase(pick(rng, w.PICTURES)), subject, action, *second, place, weather)
    if form == "fronted":
        front, rest = (place, weather) if place.text and (not weather.text or rng.random() < 0.6) else (weather, place)
        if not verb.text:
            return compose_sentence(front, there_is, subject, *second, rest)
        return compose_sentence(front, subject, be, verb, *second, rest)
    if form == "weather":
        clause = [compose_sky_phrase(w.IT_IS, scene, rng), Phrase("and")]
        if not verb.text and not place.text:
            return compose_sentence(*clause, there_is, subject, *second)
        return compose_sentence(*clause, subject, be, *([verb, *second, place] if verb.text else [place, *second]))
    action = verb if form == "participle" else Phrase()
    return compose_sentence(subject, action, *second, place, weather)


def _conjugate_be(subject: Phrase) -> Phrase:
    return Phrase("are" if subject.plural else "is")


def compose_sentence(*parts: Phrase) -> SceneCaption:
    """Return the caption of the joined parts, with all their claims."""
    text = " ".join(part.text for part in parts if part.text)
    claims = tuple(dict.fromkeys(claim for part in parts for claim in part.claims))
    return SceneCaption(text[0].upper() + text[1:] + ".", claims)


def compose_noun_phrase(
    scene: Scene, details: Details, i: int, rng: np.random.Generator, definite: bool = False
) -> Phrase:
    """Return a noun phrase for thing `i` with its number and details: two small red cars, a man in a blue shirt.

    With `definite` the phrase begins with "the", and omits the colour and the clothes.
    """
    thing = scene.things[i]
    kind = CATEGORIES[thing.category].kind
    nouns = [noun for noun in w.NOUNS[thing.category] if noun.size in ("", thing.size)]
    noun = pick(rng, nouns, [n.weight for n in nouns])
    claims = [SceneClaim("kind", noun.kind, i) if noun.kind else SceneClaim("category", thing.category, i)]
    if noun.size:
        claims.append(SceneClaim("size", noun.size, i))
    size, pattern, colour = details[i]
    adjectives, appearance = [], []  # for people, `appearance` describes the clothes
    if size and thing.size != "medium" and not noun.size:
        adjectives.append(pick(rng, w.SIZES.get(kind, w.SIZES[""])[thing.size]))
        claims.append(SceneClaim("size", thing.size, i))
    is_dressed = thing.category in w.GARMENTS
    if pattern and thing.pattern != "plain" and not (definite and is_dressed):
        appearance.append(pick(rng, w.PATTERNS[thing.pattern]))
        claims.append(SceneClaim("pattern", thing.pattern, i))
    if colour and not definite:
        appearance.append(thing.colour)
        claims.append(SceneClaim("colour", thing.colour, i))
    clothes = _describe_clothes(thing.category, appearance, thing.count, rng) if is_dressed and appearance else ""
    adjectives += [] if is_dressed else appearance
    plural = thing.count > 1
    name = " ".join([*adjectives, noun.plural if plural else noun.singular])
    if definite:
        text, claim_kind, number, verb_plural = (
            ("the", "the two", "the three")[thing.count - 1],
            "count",
            thing.count,
            plural,
        )
    else:
        text, claim_kind, number, verb_plural = pick(rng, w.COUNTS[thing.count])
        text = text if plural else choose_article(name)
    return Phrase(f"{text} {name}{clothes}", (*claims, SceneClaim(claim_kind, str(number), i)), verb_plural)


def _describe_clothes(category: str, appearance: Sequence[str], count: int, rng: np.random.Generator) -> str:
    garment = pick(rng, w.GARMENTS[category])
    word = pick(rng, (" in", " in", " wearing"))
    clothes = " ".join([*appearance, garment if count == 1 else w.GARMENT_PLURALS[garment]])
    return f"{word} {choose_article(clothes)} {clothes}" if count == 1 else f"{word} {clothes}"


def choose_article(words: str) -> str:
    """Return a or an by the first letter; no word of this vocabulary begins with a silent h or a u as in "unit"."""
    return "an" if words[0] in "aeiou" else "a"


def _describe_action(scene: Scene, actors: Sequence[int], rng: np.random.Generator) -> Phrase:
    """Return the action of all `actors`, if one verb is true of all and all or none are alive; else an empty phrase."""
    if len({CATEGORIES[scene.things[i].category].kind in ALIVE for i in actors}) > 1:
        return Phrase()  # avoids "a man and a house are standing"
    verbs = [list_verbs(scene.things[i].category, scene.things[i].pose) for i in actors]
    options = [verb for verb in verbs[0] if all(verb in others for others in verbs)]
    claims = tuple(SceneClaim("pose", scene.things[i].pose, i) for i in actors)
    return Phrase(pick(rng, options), claims) if options else Phrase()


def list_verbs(category: str, pose: str) -> tuple[str, ...]:
    """Return the verbs for a category's pose, the plainest first: running, galloping."""
    kind = CATEGORIES[category].kind.replace("child", "person")
    return next(w.VERBS[key] for key in (f"{category}:{pose}", f"{kind}:{pose}", pose) if key in w.VERBS)


def _describe_second_thing(scene: Scene, plan: CaptionPlan, rng: np.random.Generator) -> list[Phrase]:
    """Return a linking phrase ("and", a true relation) and the second thing's noun phrase; [] if none fits."""
    if plan.second < 0:
        return []
    a, b = scene.things[plan.first], scene.things[plan.second]
    has_same_animacy = (CATEGORIES[a.category].kind in ALIVE) == (CATEGORIES[b.category].kind in ALIVE)
    excluded_texts = {"and"} if plan.form == "coloured" else set()  # with "and" the colour would apply to both
    if not has_same_animacy and plan.form != "verbless":
        excluded_texts.add("with")  # avoids "a man walking with a house"
    options = [
        (text, relation, weight)
        for text, relation, weight in w.RELATIONS
        if text not in excluded_texts and (not relation or relation_holds(relation, a, b))
    ]
    if not options:
        return []
    text, relation, _ = pick(rng, options, [weight for *_, weight in options])
    claims = (SceneClaim("relation", relation, plan.first, plan.second),) if relation else ()
    return [Phrase(text, claims), compose_noun_phrase(scene, plan.details, plan.second, rng)]


def _describe_colour(scene: Scene, plan: CaptionPlan, subject: Phrase, rng: np.random.Generator) -> Phrase:
    """Return the predicate of a colour, for example "is brown", "are brown" or "is wearing a red shirt"."""
    thing = scene.things[plan.first]
    is_dressed = thing.category in w.GARMENTS
    colour = _describe_clothes(thing.category, [thing.colour], thing.count, rng) if is_dressed else f" {thing.colour}"
    return Phrase(f"{_conjugate_be(subject).text}{colour}", (SceneClaim("colour", thing.colour, plan.first),))


def compose_place_phrase(scene: Scene, mentioned_things: Sequence[int], rng: np.random.Generator) -> Phrase:
    """Return words for the place that are true of all `mentioned_things`, indices into `Scene.things`."""
    places = {scene.things[i].place[0] for i in mentioned_things}
    options = [p for p in w.PLACES[scene.setting] if places <= set(p.where) and p.landmark in ("", *scene.scenery)]
    place = pick(rng, options)
    claims = [SceneClaim("setting", scene.setting)]
    if place.landmark:
        claims.append(SceneClaim("scenery", place.landmark))
    if len(place.where) == 1:
        claims += [SceneClaim("place", scene.things[i].place, i) for i in mentioned_things]
    return Phrase(place.text, tuple(claims))


def compose_sky_phrase(
    phrases: dict[tuple[str, str], tuple[str, ...]], scene: Scene, rng: np.random.Generator
) -> Phrase:
    """Return one of `phrases`, by (weather, light), which claims the weather by day, else the light."""
    claim = SceneClaim("weather", scene.weather) if scene.light == "day" else SceneClaim("light", scene.light)
    return Phrase(pick(rng, phrases[scene.weather, scene.light]), (claim,))
