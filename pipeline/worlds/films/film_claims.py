"""Truth of captions' claims in films: events, their actors and their order, and all claims about scenes.

The lexicon is built from the annotators' own words (film_words.py), and the longest phrase wins. An event is claimed of
the noun before it. "Then" and "before" between two events claim their order, and so does "after" at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from pipeline.worlds.films import film_words as w
from pipeline.worlds.films.film_facts import Film
from pipeline.worlds.films.film_world import GAITS, OTHER, SIDES
from pipeline.worlds.scenes.faithfulness import Fact
from pipeline.worlds.scenes.parser import longest_phrases, split_words, words_of_claims
from pipeline.worlds.scenes.scene_claims import SceneClaims

NOT_OF_FILMS = (
    "action",
    "relation",
)  # kinds of scenes' claims: a film has no single pose, and relations change
T = TypeVar("T")
ANYBODY = frozenset(GAITS)
ORDERING = ("then", "before")


class EventMeaning(NamedTuple):
    """Event that a phrase may describe; side and gait are "" if the phrase leaves them open."""

    what: str
    side: str = ""
    gait: str = ""

    def fits(self, what: str, side: str, gait: str) -> bool:
        """Return whether the meaning matches such an event."""
        return self.what == what and self.side in ("", side) and self.gait in ("", gait)


class TokenEvent(NamedTuple):
    """Phrase of a caption: the events that it may describe, and the possible categories of its subject."""

    meanings: frozenset[EventMeaning]
    categories: frozenset[str]


class ParsedFilm(NamedTuple):
    """Events of a caption in its order, the pairs that its words order in time, and its stories."""

    happenings: tuple[TokenEvent, ...]
    before: tuple[tuple[TokenEvent, TokenEvent], ...]
    stories: frozenset[str]


class FilmClaims:
    """Facts of M films."""

    def __init__(self, films: Sequence[Film]) -> None:
        self._stories = [_stories(film) for film in films]
        self._still = SceneClaims([film.scene for film in films])
        self._happens = cache(self._judge)
        rows = [
            (number, thing.category, event[:3], event.start)
            for number, film in enumerate(films)
            for thing, events in zip(film.scene.things, film.events, strict=True)
            for event in events
        ]
        numbers, categories, kinds, starts = zip(*rows, strict=True)
        self._film, self._start = np.array(numbers), np.array(starts)  # film and start of each event
        self._categories, self._category = _coded(categories)
        self._kinds, self._kind = _coded(kinds)

    def of(self, caption: str) -> dict[Fact, np.ndarray]:
        """Return each claim of the caption with its truth (M,) bool in each film."""
        claims = {claim: truth for claim, truth in self._still.of(caption).items() if claim[0] not in NOT_OF_FILMS}
        parsed = parse_film_caption(caption)
        for happening in parsed.happenings:
            claims["event", happening.meanings, happening.categories] = np.isfinite(self._happens(happening)[0])
        for first, second in parsed.before:
            claims["then", first, second] = self._happens(first)[0] < self._happens(second)[1]
        for story in parsed.stories:
            claims["story", frozenset((story,))] = np.array([story in those for those in self._stories])
        return claims

    def _judge(self, happening: TokenEvent) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts (M,) of the event's first and last occurrence; ∞ and −∞ if it does not occur."""
        first, last = np.full(len(self._stories), np.inf), np.full(len(self._stories), -np.inf)
        kinds = np.array([any(meaning.fits(*kind) for meaning in happening.meanings) for kind in self._kinds])
        categories = np.array([category in happening.categories for category in self._categories])
        matching = kinds[self._kind] & categories[self._category]
        np.minimum.at(first, self._film[matching], self._start[matching])
        np.maximum.at(last, self._film[matching], self._start[matching])
        return first, last


@lru_cache(maxsize=1 << 16)
def parse_film_caption(text: str) -> ParsedFilm:
    """Return the events that a caption claims; case and punctuation do not matter."""
    words = split_words(text)
    named = sorted(
        (place, fact[-1]) for fact, places in words_of_claims(text).items() if fact[0] == "category" for place in places
    )
    events_at: list[tuple[TokenEvent, range]] = []
    stories = set()
    for meanings, place in longest_phrases(words, _lexicon()):
        stories |= {meaning.what for meaning in meanings if meaning.what in w.STORIES}
        events = frozenset(meaning for meaning in meanings if meaning.what not in w.STORIES)
        if events:
            subject = [categories for start, categories in named if start < place.start]
            events_at.append((TokenEvent(events, subject[-1] if subject else ANYBODY), place))
    before = tuple(
        (a, b)
        for n, ((a, here), (b, there)) in enumerate(pairwise(events_at))
        if not set(ORDERING).isdisjoint(words[here.stop : there.start]) or (n == 0 and words[0] == "after")
    )
    return ParsedFilm(tuple(happening for happening, _ in events_at), before, frozenset(stories))


def _coded(values: Sequence[T]) -> tuple[list[T], np.ndarray]:
    """Return the distinct values, and the index of each value among them."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(numbers), np.array([numbers[value] for value in values])


def _stories(film: Film) -> tuple[str, ...]:
    return ("follow",) if film.story == "lead" else (film.story,)


@cache
def _lexicon() -> dict[tuple[str, ...], frozenset[EventMeaning]]:
    lexicon: dict[tuple[str, ...], set[EventMeaning]] = {}
    for text, meaning in _entries():
        lexicon.setdefault(tuple(text.split()), set()).add(meaning)
    return {words: frozenset(meanings) for words, meanings in lexicon.items()}


def _entries() -> Iterator[tuple[str, EventMeaning]]:
    """Yield every phrase of the annotators for an event, with a meaning of it."""
    travels = {"enter": w.ENTER, "cross": w.CROSS, "return": (*w.RETURN, *w.LEAVE), "leave": (*w.LEAVE, *w.LEAVE_ON)}
    for what, texts in travels.items():
        for text in texts:
            gaits = w.GAIT_VERBS.items() if "{v}" in text else (("", ("",)),)
            for side in SIDES:
                place = text.replace("{side}", side).replace("{other}", OTHER[side])
                claimed = side if place != text else ""
                for gait, verbs in gaits:
                    for verb in verbs:
                        for form in (w.finite, w.participle):
                            yield form(place.replace("{v}", verb)), EventMeaning(what, claimed, gait)
    for key, texts in w.ACT_WORDS.items():
        for text in texts:
            for form in (w.finite, w.participle):
                yield form(text), EventMeaning(key.split(":")[-1])
    for side in SIDES:
        yield f"from {side} to {OTHER[side]}", EventMeaning("cross", side)
        yield f"comes from the {side}", EventMeaning("enter", side)
    for story, texts in w.STORIES.items():
        for text in texts:
            yield text, EventMeaning(story)
