"""Simulated annotators of films: captions that state some of the events, in their order, and nothing false."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipeline.worlds.films import film_words as w
from pipeline.worlds.films.film_facts import Event, Film
from pipeline.worlds.films.film_world import OTHER
from pipeline.worlds.scenes.scene_captions import (
    MOODS,
    AnnotatorStyle,
    Details,
    Phrase,
    SceneCaption,
    SceneClaim,
    noun_phrase,
    place_phrase,
    sentence,
    sky_phrase,
)
from pipeline.worlds.scenes.scene_facts import pick, stream
from pipeline.worlds.scenes.scene_words import IT_IS, WEATHER

SHORTEST, LONGEST = 4, 18
PLACED = 0.55  # factor of a style's share of captions with a place, since films have more to describe
SINGLE = {"finite": 0.42, "progressive": 0.16, "participle": 0.2, "film": 0.1, "fronted": 0.06, "weather": 0.06}
ALL_EVENTS = 0.78  # share of captions with all events of an actor


class AnnotatorView(NamedTuple):
    """Choices of one simulated annotator for a film."""

    film: Film
    mood: AnnotatorStyle
    details: Details
    rng: np.random.Generator

    def noun(self, i: int) -> Phrase:
        """Return actor `i` as a noun with an article."""
        return noun_phrase(self.film.scene, self.details, i, self.rng)

    def pair(self, a: int, b: int) -> tuple[Phrase, Phrase]:
        """Return the nouns of two actors; the second begins with "another" if both are the same."""
        first, second = self.noun(a), self.noun(b)
        same = first.text == second.text
        return first, replace(second, text=f"another {second.text.split(maxsplit=1)[1]}") if same else second

    def verb(self, i: int, which: Sequence[int], form: Callable[[str], str]) -> Phrase:
        """Return the given events of actor `i` as verbs, joined in their order."""
        events, thing = self.film.events[i], self.film.scene.things[i]
        texts = [_words(self.film, i, n, self.rng, alone=n == which[0]) for n in which]
        claims = [SceneClaim("event", events[n].what, i) for n in which]
        claims += [
            SceneClaim("side", events[n].side, i) for n, text in zip(which, texts, strict=True) if "{" in _sided(text)
        ]
        parts = [form(_filled(text, events[n], thing.category, self.rng)) for n, text in zip(which, texts, strict=True)]
        if len(parts) == 1:
            return Phrase(parts[0], tuple(claims))
        last = pick(
            self.rng, (" and then ", " and then ", ", then ", " and ", *([" before "] if len(parts) == 2 else []))
        )
        if last == " before ":
            parts[-1] = w.participle(_filled(texts[-1], events[which[-1]], thing.category, self.rng))
        claims += [SceneClaim("then", f"{events[a].what} {events[b].what}", i) for a, b in pairwise(which)]
        return Phrase(", ".join(parts[:-1]) + last + parts[-1], tuple(claims))


def describe_film(film: Film, seed: int, index: int, captions: int = 5) -> list[SceneCaption]:
    """Return `captions` distinct captions of `film`, number `index`; they depend on the arguments alone."""
    rng = stream(seed, index, 14)
    written: list[SceneCaption] = []
    for _ in range(1000):
        caption = _write(film, rng)
        if SHORTEST <= len(caption.tokens) <= LONGEST and all(caption.raw != other.raw for other in written):
            written.append(caption)
        if len(written) == captions:
            return written
    raise RuntimeError(f"no {captions} captions of film {index} of seed {seed}")


def _write(film: Film, rng: np.random.Generator) -> SceneCaption:
    mood = pick(rng, MOODS, [mood.share for mood in MOODS])
    details: Details = {
        i: (
            rng.random() < 0.12,
            rng.random() < 0.5 * mood.colour,
            rng.random() < mood.colour * (1.0 if i == 0 else 0.8),
        )
        for i in range(len(film.events))
    }
    view = AnnotatorView(film, mood, details, rng)
    if film.story == "both":
        return _of_both(view)
    if film.story != "solo":
        return JOINT[film.story](view)
    return _of_one(view, 0)


def _of_one(view: AnnotatorView, i: int) -> SceneCaption:
    """Return a sentence about one actor alone."""
    rng, subject = view.rng, view.noun(i)
    number = len(view.film.events[i])
    which = range(number) if rng.random() < ALL_EVENTS else [int(rng.random() * number)]
    place, weather = _surroundings(view, [i])
    possible = {"fronted": bool(place.text), "weather": bool(weather.text)}
    forms = {form: share for form, share in SINGLE.items() if possible.get(form, True)}
    form = pick(rng, tuple(forms), tuple(forms.values()))
    if form in ("finite", "fronted", "weather"):
        verb = view.verb(i, which, w.finite)
        if form == "fronted":
            return sentence(place, subject, verb, weather)
        if form == "weather":
            return sentence(sky_phrase(IT_IS, view.film.scene, rng), Phrase("and"), subject, verb, place)
        return sentence(subject, verb, place, weather)
    verb = view.verb(i, which, w.participle)
    if form == "progressive":
        return sentence(subject, Phrase("is"), verb, place, weather)
    if form == "film":
        return sentence(Phrase(pick(rng, w.FILMS)), subject, verb, place, weather)
    return sentence(subject, verb, place, weather)


def _of_both(view: AnnotatorView) -> SceneCaption:
    """Return a sentence about two actors with events of their own."""
    rng, film = view.rng, view.film
    if rng.random() > 0.35 + 0.6 * view.mood.second:
        return _of_one(view, 0 if rng.random() < 0.75 else 1)
    a, b = (1, 0) if film.order == "reversed" or (film.order == "together" and rng.random() < 0.3) else (0, 1)
    first, second = view.pair(a, b)
    chosen = [_some(view, i) for i in (a, b)]
    place, weather = _surroundings(view, [a, b], 0.6)
    if film.order == "together":
        events = [[film.events[i][n] for n in which] for i, which in zip((a, b), chosen, strict=True)]
        at_once = max(of[0].start for of in events) < min(of[-1].end for of in events)
        joint = pick(rng, ("while", "while", "and", "as")) if at_once else "and"
        order = Phrase(joint, (SceneClaim("order", "together", a, b),) if joint != "and" else ())
    else:
        order = Phrase(
            pick(rng, ("and then", "and then", "before", "first", "after")), (SceneClaim("order", "then", a, b),)
        )
        chosen[0] = chosen[0][:1] if order.text == "after" else chosen[0]
    verbs = [view.verb(i, which, w.finite) for i, which in zip((a, b), chosen, strict=True)]
    if order.text == "first":
        then = replace(order, text="and then")
        return sentence(Phrase("first"), first, verbs[0], then, second, verbs[1], place, weather)
    if order.text == "after":
        done = replace(verbs[0], text=f"{verbs[0].text},")
        return sentence(order, first, done, second, verbs[1], place, weather)
    return sentence(first, verbs[0], order, second, verbs[1], place, weather)


def _some(view: AnnotatorView, i: int) -> Sequence[int]:
    number = len(view.film.events[i])
    if number == 1 or view.rng.random() < 0.4:
        return range(min(number, 2))
    return [int(view.rng.random() * number)]


def _of_meeting(view: AnnotatorView) -> SceneCaption:
    rng, a, b = view.rng, *_pair(view)
    first, second = view.pair(a, b)
    place, weather = _surroundings(view, [a, b])
    meet = (SceneClaim("story", "meet", a, b),)
    form = pick(rng, ("meet", "meets", "in", "sides"))
    side = view.film.events[a][0].side
    if form == "meet":
        return sentence(first, Phrase("and"), second, Phrase(pick(rng, w.MEET), meet), place, weather)
    if form == "meets":
        way = view.verb(a, [0], w.participle) if rng.random() < 0.6 else Phrase()
        return sentence(first, way, Phrase(w.MEETS, meet), second, place, weather)
    if form == "in":
        return sentence(first, view.verb(a, [0], w.finite), Phrase(f"and {w.MEETS}", meet), second, place, weather)
    sides = (SceneClaim("side", side, a), SceneClaim("side", OTHER[side], b))
    verb = pick(rng, w.GAIT_VERBS[view.film.events[a][0].gait])
    come = Phrase(f"{w.finite(verb)} in from the {side}", (*meet, *sides[:1]))
    return sentence(
        first, come, Phrase("and"), second, Phrase(f"comes from the {OTHER[side]}", sides[1:]), place, weather
    )


def _of_passing(view: AnnotatorView) -> SceneCaption:
    rng, a, b = view.rng, *_pair(view)
    first, second = view.pair(a, b)
    place, weather = _surroundings(view, [a, b])
    passing = (SceneClaim("story", "pass", a, b),)
    form = pick(rng, ("pass", "passes", "while", "way"))
    if form == "pass":
        return sentence(first, Phrase("and"), second, Phrase(pick(rng, w.PASS), passing), place, weather)
    if form == "passes":
        return sentence(first, view.verb(a, [0], w.finite), Phrase(f"and {w.PASSES}", passing), second, place, weather)
    if form == "while":
        verbs = [view.verb(i, [0], w.finite) for i in (a, b)]
        return sentence(first, verbs[0], Phrase("while", passing), second, verbs[1], weather)
    way = Phrase("and", passing), second, Phrase("comes the other way")
    return sentence(first, view.verb(a, [0], w.finite), *way, place, weather)


def _of_following(view: AnnotatorView) -> SceneCaption:
    rng, film = view.rng, view.film
    a, b = (0, 1) if film.story == "follow" else (1, 0)
    first, second = view.pair(a, b)
    place, weather = _surroundings(view, [a, b])
    follow = (SceneClaim("story", "follow", b, a),)
    side = film.events[0][0].side
    from_to = Phrase()
    if rng.random() < 0.75:
        from_to = Phrase(f"from {side} to {OTHER[side]}", (SceneClaim("side", side, 0), SceneClaim("side", side, 1)))
    form = pick(rng, ("follows", "follows", "followed", "and", "behind"))
    if form == "follows":
        return sentence(second, Phrase(pick(rng, w.FOLLOW), follow), first, from_to, place, weather)
    if form == "followed":
        return sentence(first, Phrase(w.FOLLOWED, follow), second, from_to, place, weather)
    verb = view.verb(a, [0], w.finite)
    if form == "and":
        return sentence(first, verb, Phrase("and", follow), second, Phrase("follows"), place, weather)
    return sentence(first, verb, Phrase("with", follow), second, Phrase("behind"), place, weather)


JOINT = {"meet": _of_meeting, "pass": _of_passing, "follow": _of_following, "lead": _of_following}


def _pair(view: AnnotatorView) -> tuple[int, int]:
    return (0, 1) if view.rng.random() < 0.75 else (1, 0)


def _surroundings(view: AnnotatorView, of: Sequence[int], share: float = 1.0) -> tuple[Phrase, Phrase]:
    """Return phrases for the place and the weather, which are often empty."""
    rng, mood, scene = view.rng, view.mood, view.film.scene
    usual = {"sunny": 0.3, "cloudy": 0.6}.get(scene.weather, 1.0)
    place = place_phrase(scene, of, rng) if rng.random() < PLACED * share * mood.place else Phrase()
    weather = sky_phrase(WEATHER, scene, rng) if rng.random() < 0.4 * share * mood.weather * usual else Phrase()
    return place, weather


def _words(film: Film, i: int, n: int, rng: np.random.Generator, alone: bool) -> str:
    """Return a text for event `n` of actor `i`, with gaps for verb and sides; `alone`: no event precedes it."""
    event, category = film.events[i][n], film.scene.things[i].category
    entered = film.events[i][0].what == "enter" and not alone
    leave = w.LEAVE_ON if entered else w.LEAVE
    texts = {"enter": w.ENTER, "cross": w.CROSS, "return": w.RETURN if entered else w.LEAVE, "leave": leave}
    return pick(rng, texts.get(event.what) or w.ACT_WORDS.get(f"{category}:{event.what}") or w.ACT_WORDS[event.what])


def _sided(text: str) -> str:
    """Return the text without the gap for its verb: a remaining gap names a side."""
    return text.replace("{v}", "")


def _filled(text: str, event: Event, category: str, rng: np.random.Generator) -> str:
    verb = pick(rng, w.GAIT_VERBS[event.gait]) if event.gait else ""
    return text.replace("{v}", verb).replace("{side}", event.side).replace("{other}", OTHER.get(event.side, ""))
