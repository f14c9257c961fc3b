"""Simulated annotators of films: captions that state some of the events, in their order, and nothing false."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipeline.worlds.films import film_words as w
from pipeline.worlds.films.film_facts import Event, Film
from pipeline.worlds.films.film_world import OPPOSITE
from pipeline.worlds.scenes.scene_captions import (
    STYLES,
    AnnotatorStyle,
    Details,
    Phrase,
    SceneCaption,
    SceneClaim,
    compose_noun_phrase,
    compose_place_phrase,
    compose_sentence,
    compose_sky_phrase,
)
from pipeline.worlds.scenes.scene_facts import make_generator, pick
from pipeline.worlds.scenes.scene_words import IT_IS, WEATHER

MIN_WORDS, MAX_WORDS = 4, 18  # words of a caption
PLACE_FACTOR = 0.55  # factor of a style's share of captions with a place, since films have more to describe
# relative probability of each sentence form for one actor
FORMS = {"finite": 0.42, "progressive": 0.16, "participle": 0.2, "film": 0.1, "fronted": 0.06, "weather": 0.06}
ALL_EVENTS = 0.78  # share of captions with all events of an actor


class FilmAnnotator(NamedTuple):
    """Simulated annotator of a film, with a style and the details to mention."""

    film: Film
    style: AnnotatorStyle
    details: Details
    rng: np.random.Generator

    def noun(self, i: int) -> Phrase:
        """Return actor `i` as a noun with an article."""
        return compose_noun_phrase(self.film.scene, self.details, i, self.rng)

    def pair(self, a: int, b: int) -> tuple[Phrase, Phrase]:
        """Return the nouns of two actors; the second begins with "another" if both are the same."""
        first, second = self.noun(a), self.noun(b)
        same = first.text == second.text
        return first, replace(second, text=f"another {second.text.split(maxsplit=1)[1]}") if same else second

    def verb(self, i: int, numbers: Sequence[int], form: Callable[[str], str]) -> Phrase:
        """Return the events `numbers` of actor `i` as verbs in the form `form`, joined in their order."""
        events = self.film.events[i]
        texts = [_pick_event_text(self.film, i, n, self.rng, alone=n == numbers[0]) for n in numbers]
        claims = [SceneClaim("event", events[n].kind, i) for n in numbers]
        for n, text in zip(numbers, texts, strict=True):
            if "{" in text.replace("{v}", ""):  # a gap other than the verb's names a side
                claims.append(SceneClaim("side", events[n].side, i))
        parts = [form(_fill_gaps(text, events[n], self.rng)) for n, text in zip(numbers, texts, strict=True)]
        if len(parts) == 1:
            return Phrase(parts[0], tuple(claims))
        conjunctions = [" and then ", " and then ", ", then ", " and "]
        if len(parts) == 2:
            conjunctions.append(" before ")
        last = pick(self.rng, conjunctions)
        if last == " before ":
            parts[-1] = w.form_participle(_fill_gaps(texts[-1], events[numbers[-1]], self.rng))
        claims += [SceneClaim("then", f"{events[a].kind} {events[b].kind}", i) for a, b in pairwise(numbers)]
        return Phrase(", ".join(parts[:-1]) + last + parts[-1], tuple(claims))


def describe_film(film: Film, seed: int, index: int, captions: int = 5) -> list[SceneCaption]:
    """Return `captions` distinct captions of `film`, whose number is `index`; they depend on the arguments alone.

    Raises RuntimeError if 1,000 attempts yield too few.
    """
    rng = make_generator(seed, index, 14)
    sentences: list[SceneCaption] = []
    for _ in range(1000):
        caption = _compose_caption(film, rng)
        if MIN_WORDS <= len(caption.tokens) <= MAX_WORDS and all(caption.raw != other.raw for other in sentences):
            sentences.append(caption)
        if len(sentences) == captions:
            return sentences
    raise RuntimeError(
        f"film {index} of seed {seed}: expected {captions} distinct captions, got {len(sentences)}; ask for fewer"
    )


def _compose_caption(film: Film, rng: np.random.Generator) -> SceneCaption:
    style = pick(rng, STYLES, [style.share for style in STYLES])
    details: Details = {
        i: (
            rng.random() < 0.12,
            rng.random() < 0.5 * style.colour,
            rng.random() < style.colour * (1.0 if i == 0 else 0.8),
        )
        for i in range(len(film.events))
    }
    annotator = FilmAnnotator(film, style, details, rng)
    if film.story == "both":
        return _describe_two_actors(annotator)
    if film.story != "solo":
        return STORY_WRITERS[film.story](annotator)
    return _describe_one_actor(annotator, 0)


def _describe_one_actor(annotator: FilmAnnotator, i: int) -> SceneCaption:
    """Return a sentence about one actor alone."""
    rng, subject = annotator.rng, annotator.noun(i)
    count = len(annotator.film.events[i])
    numbers = range(count) if rng.random() < ALL_EVENTS else [int(rng.random() * count)]
    place, weather = _pick_surroundings(annotator, [i])
    possible = {"fronted": bool(place.text), "weather": bool(weather.text)}
    forms = {form: share for form, share in FORMS.items() if possible.get(form, True)}
    form = pick(rng, tuple(forms), tuple(forms.values()))
    if form in ("finite", "fronted", "weather"):
        verb = annotator.verb(i, numbers, w.conjugate)
        if form == "fronted":
            return compose_sentence(place, subject, verb, weather)
        if form == "weather":
            return compose_sentence(
                compose_sky_phrase(IT_IS, annotator.film.scene, rng), Phrase("and"), subject, verb, place
            )
        return compose_sentence(subject, verb, place, weather)
    verb = annotator.verb(i, numbers, w.form_participle)
    if form == "progressive":
        return compose_sentence(subject, Phrase("is"), verb, place, weather)
    if form == "film":
        return compose_sentence(Phrase(pick(rng, w.FILMS)), subject, verb, place, weather)
    return compose_sentence(subject, verb, place, weather)


def _describe_two_actors(annotator: FilmAnnotator) -> SceneCaption:
    """Return a sentence about two actors with events of their own, or about one of the two."""
    rng, film = annotator.rng, annotator.film
    if rng.random() > 0.35 + 0.6 * annotator.style.second:
        return _describe_one_actor(annotator, 0 if rng.random() < 0.75 else 1)
    is_swapped = film.order == "reversed" or (film.order == "together" and rng.random() < 0.3)
    a, b = (1, 0) if is_swapped else (0, 1)
    first, second = annotator.pair(a, b)
    event_numbers = [_choose_events(annotator, i) for i in (a, b)]
    place, weather = _pick_surroundings(annotator, [a, b], 0.6)
    if film.order == "together":
        stated_events = [[film.events[i][n] for n in numbers] for i, numbers in zip((a, b), event_numbers, strict=True)]
        overlap = max(events[0].start for events in stated_events) < min(events[-1].end for events in stated_events)
        conjunction = pick(rng, ("while", "while", "and", "as")) if overlap else "and"
        order = Phrase(conjunction, (SceneClaim("order", "together", a, b),) if conjunction != "and" else ())
    else:
        order = Phrase(
            pick(rng, ("and then", "and then", "before", "first", "after")), (SceneClaim("order", "then", a, b),)
        )
        event_numbers[0] = event_numbers[0][:1] if order.text == "after" else event_numbers[0]
    verbs = [annotator.verb(i, numbers, w.conjugate) for i, numbers in zip((a, b), event_numbers, strict=True)]
    if order.text == "first":
        second_conjunction = replace(order, text="and then")
        return compose_sentence(Phrase("first"), first, verbs[0], second_conjunction, second, verbs[1], place, weather)
    if order.text == "after":
        first_verb = replace(verbs[0], text=f"{verbs[0].text},")
        return compose_sentence(order, first, first_verb, second, verbs[1], place, weather)
    return compose_sentence(first, verbs[0], order, second, verbs[1], place, weather)


def _choose_events(annotator: FilmAnnotator, i: int) -> Sequence[int]:
    """Return the numbers of the events of actor `i` to state: the first two, or any one."""
    count = len(annotator.film.events[i])
    if count == 1 or annotator.rng.random() < 0.4:
        return range(min(count, 2))
    return [int(annotator.rng.random() * count)]


def _describe_meeting(annotator: FilmAnnotator) -> SceneCaption:
    rng, a, b = annotator.rng, *_draw_order(annotator)
    first, second = annotator.pair(a, b)
    place, weather = _pick_surroundings(annotator, [a, b])
    meet = (SceneClaim("story", "meet", a, b),)
    form = pick(rng, ("meet", "meets", "in", "sides"))
    side = annotator.film.events[a][0].side
    if form == "meet":
        return compose_sentence(first, Phrase("and"), second, Phrase(pick(rng, w.MEET), meet), place, weather)
    if form == "meets":
        entry = annotator.verb(a, [0], w.form_participle) if rng.random() < 0.6 else Phrase()
        return compose_sentence(first, entry, Phrase(w.MEETS, meet), second, place, weather)
    if form == "in":
        return compose_sentence(
            first, annotator.verb(a, [0], w.conjugate), Phrase(f"and {w.MEETS}", meet), second, place, weather
        )
    sides = (SceneClaim("side", side, a), SceneClaim("side", OPPOSITE[side], b))
    verb = pick(rng, w.GAIT_VERBS[annotator.film.events[a][0].gait])
    come = Phrase(f"{w.conjugate(verb)} in from the {side}", (*meet, *sides[:1]))
    return compose_sentence(
        first, come, Phrase("and"), second, Phrase(f"comes from the {OPPOSITE[side]}", sides[1:]), place, weather
    )


def _describe_passing(annotator: FilmAnnotator) -> SceneCaption:
    rng, a, b = annotator.rng, *_draw_order(annotator)
    first, second = annotator.pair(a, b)
    place, weather = _pick_surroundings(annotator, [a, b])
    passing = (SceneClaim("story", "pass", a, b),)
    form = pick(rng, ("pass", "passes", "while", "way"))
    if form == "pass":
        return compose_sentence(first, Phrase("and"), second, Phrase(pick(rng, w.PASS), passing), place, weather)
    if form == "passes":
        return compose_sentence(
            first, annotator.verb(a, [0], w.conjugate), Phrase(f"and {w.PASSES}", passing), second, place, weather
        )
    if form == "while":
        verbs = [annotator.verb(i, [0], w.conjugate) for i in (a, b)]
        return compose_sentence(first, verbs[0], Phrase("while", passing), second, verbs[1], weather)
    second_clause = Phrase("and", passing), second, Phrase("comes the other way")
    return compose_sentence(first, annotator.verb(a, [0], w.conjugate), *second_clause, place, weather)


def _describe_following(annotator: FilmAnnotator) -> SceneCaption:
    rng, film = annotator.rng, annotator.film
    a, b = (0, 1) if film.story == "follow" else (1, 0)
    first, second = annotator.pair(a, b)
    place, weather = _pick_surroundings(annotator, [a, b])
    follow = (SceneClaim("story", "follow", b, a),)
    side = film.events[0][0].side
    from_to = Phrase()
    if rng.random() < 0.75:
        from_to = Phrase(f"from {side} to {OPPOSITE[side]}", (SceneClaim("side", side, 0), SceneClaim("side", side, 1)))
    form = pick(rng, ("follows", "follows", "followed", "and", "behind"))
    if form == "follows":
        return compose_sentence(second, Phrase(pick(rng, w.FOLLOW), follow), first, from_to, place, weather)
    if form == "followed":
        return compose_sentence(first, Phrase(w.FOLLOWED, follow), second, from_to, place, weather)
    verb = annotator.verb(a, [0], w.conjugate)
    if form == "and":
        return compose_sentence(first, verb, Phrase("and", follow), second, Phrase("follows"), place, weather)
    return compose_sentence(first, verb, Phrase("with", follow), second, Phrase("behind"), place, weather)


STORY_WRITERS = {
    "meet": _describe_meeting,
    "pass": _describe_passing,
    "follow": _describe_following,
    "lead": _describe_following,
}


def _draw_order(annotator: FilmAnnotator) -> tuple[int, int]:
    """Return the two actors in the order in which the sentence names them."""
    return (0, 1) if annotator.rng.random() < 0.75 else (1, 0)


def _pick_surroundings(annotator: FilmAnnotator, actors: Sequence[int], share: float = 1.0) -> tuple[Phrase, Phrase]:
    """Return a phrase for the place of `actors` and a phrase for the weather; both are often empty."""
    rng, style, scene = annotator.rng, annotator.style, annotator.film.scene
    factor = {"sunny": 0.3, "cloudy": 0.6}.get(scene.weather, 1.0)
    place = compose_place_phrase(scene, actors, rng) if rng.random() < PLACE_FACTOR * share * style.place else Phrase()
    weather = (
        compose_sky_phrase(WEATHER, scene, rng) if rng.random() < 0.4 * share * style.weather * factor else Phrase()
    )
    return place, weather


def _pick_event_text(film: Film, i: int, n: int, rng: np.random.Generator, alone: bool) -> str:
    """Return a text for event `n` of actor `i`, with gaps for verb and sides; `alone`: no stated event precedes it."""
    event, category = film.events[i][n], film.scene.things[i].category
    has_entered = film.events[i][0].kind == "enter" and not alone
    leave = w.LEAVE_ON if has_entered else w.LEAVE
    texts = {"enter": w.ENTER, "cross": w.CROSS, "return": w.RETURN if has_entered else w.LEAVE, "leave": leave}
    return pick(rng, texts.get(event.kind) or w.ACT_WORDS.get(f"{category}:{event.kind}") or w.ACT_WORDS[event.kind])


def _fill_gaps(text: str, event: Event, rng: np.random.Generator) -> str:
    verb = pick(rng, w.GAIT_VERBS[event.gait]) if event.gait else ""
    return text.replace("{v}", verb).replace("{side}", event.side).replace("{other}", OPPOSITE.get(event.side, ""))
