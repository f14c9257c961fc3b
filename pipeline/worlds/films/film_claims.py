"""Truth of captions' claims in films: events, their actors, their order, stories, and claims about the scene.

The lexicon consists of the annotators' phrases (film_words.py, film_captions.py), and the longest phrase counts. The
subject of an event is the last noun before its phrase. "Then" and "before" between two events claim their order.
"After" at the beginning claims the order of the first two events. A story has no subject: "follows" does not claim
which actor is behind. Claims about poses and relations of things are left out, since both change during a film.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from pipeline.worlds.films import film_words as w
from pipeline.worlds.films.film_facts import Film
from pipeline.worlds.films.film_world import GAITS, OPPOSITE, SIDES
from pipeline.worlds.scenes.faithfulness import Fact
from pipeline.worlds.scenes.parser import find_longest_phrases, find_words_of_claims, split_words
from pipeline.worlds.scenes.scene_claims import SceneClaims

SCENE_ONLY = ("action", "relation")  # kinds of claims that are left out
T = TypeVar("T")
ALL_CATEGORIES = frozenset(GAITS)
ORDER_WORDS = ("then", "before")


class EventMeaning(NamedTuple):
    """Event or story that a phrase may describe; side or gait is "" if the phrase does not state it."""

    kind: str
    side: str = ""
    gait: str = ""

    def fits(self, kind: str, side: str, gait: str) -> bool:
        """Return whether an event of this kind, side and gait has the meaning."""
        return self.kind == kind and self.side in ("", side) and self.gait in ("", gait)


class EventMention(NamedTuple):
    """Phrase of a caption for an event: its possible meanings, and the possible categories of its subject."""

    meanings: frozenset[EventMeaning]
    categories: frozenset[str]


class ParsedFilmCaption(NamedTuple):
    """Claims of a caption: its events in their order, the pairs of events that it orders in time, and its stories."""

    events: tuple[EventMention, ...]
    ordered: tuple[tuple[EventMention, EventMention], ...]
    stories: frozenset[str]


class FilmClaims:
    """Checker of captions' claims in M films; the starts of events are cached by mention."""

    def __init__(self, films: Sequence[Film]) -> None:
        self._stories = ["follow" if film.story == "lead" else film.story for film in films]
        self._scene_claims = SceneClaims([film.scene for film in films])
        self._get_starts = cache(self._find_starts)
        rows = [
            (number, thing.category, event[:3], event.start)
            for number, film in enumerate(films)
            for thing, events in zip(film.scene.things, film.events, strict=True)
            for event in events
        ]
        numbers, categories, kinds, starts = zip(*rows, strict=True)
        self._film, self._start = np.array(numbers), np.array(starts)  # film number and start of each event
        self._categories, self._category = _encode(categories)
        self._kinds, self._kind = _encode(kinds)

    def check(self, caption: str) -> dict[Fact, np.ndarray]:
        """Return each claim of the caption with its truth (M,) bool in each film."""
        claims = {
            claim: truth for claim, truth in self._scene_claims.check(caption).items() if claim[0] not in SCENE_ONLY
        }
        parsed_caption = parse_film_caption(caption)
        for mention in parsed_caption.events:
            claims["event", mention.meanings, mention.categories] = np.isfinite(self._get_starts(mention)[0])
        for first, second in parsed_caption.ordered:
            claims["then", first, second] = self._get_starts(first)[0] < self._get_starts(second)[1]
        for story in parsed_caption.stories:
            claims["story", frozenset((story,))] = np.array([story == film_story for film_story in self._stories])
        return claims

    def _find_starts(self, mention: EventMention) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts (M,) of the first and the last matching event per film; ∞ and −∞ without a match."""
        first, last = np.full(len(self._stories), np.inf), np.full(len(self._stories), -np.inf)
        kinds = np.array([any(meaning.fits(*kind) for meaning in mention.meanings) for kind in self._kinds])
        categories = np.array([category in mention.categories for category in self._categories])
        matching = kinds[self._kind] & categories[self._category]
        np.minimum.at(first, self._film[matching], self._start[matching])
        np.maximum.at(last, self._film[matching], self._start[matching])
        return first, last


@lru_cache(maxsize=1 << 16)
def parse_film_caption(text: str) -> ParsedFilmCaption:
    """Return the claims of a caption about events and stories; case and punctuation do not matter."""
    words = split_words(text)
    nouns = sorted(
        (index, fact[-1])
        for fact, indices in find_words_of_claims(text).items()
        if fact[0] == "category"
        for index in indices
    )
    located_events: list[tuple[EventMention, range]] = []
    stories = set()
    for meanings, span in find_longest_phrases(words, _build_lexicon()):
        stories |= {meaning.kind for meaning in meanings if meaning.kind in w.STORIES}
        events = frozenset(meaning for meaning in meanings if meaning.kind not in w.STORIES)
        if events:
            subjects = [categories for index, categories in nouns if index < span.start]
            located_events.append((EventMention(events, subjects[-1] if subjects else ALL_CATEGORIES), span))
    ordered = tuple(
        (a, b)
        for n, ((a, span_a), (b, span_b)) in enumerate(pairwise(located_events))
        if not set(ORDER_WORDS).isdisjoint(words[span_a.stop : span_b.start]) or (n == 0 and words[0] == "after")
    )
    return ParsedFilmCaption(tuple(mention for mention, _ in located_events), ordered, frozenset(stories))


def _encode(values: Sequence[T]) -> tuple[list[T], np.ndarray]:
    """Return the distinct values, and the index of each value among them."""
    indices = {value: index for index, value in enumerate(dict.fromkeys(values))}
    return list(indices), np.array([indices[value] for value in values])


@cache
def _build_lexicon() -> dict[tuple[str, ...], frozenset[EventMeaning]]:
    lexicon: dict[tuple[str, ...], set[EventMeaning]] = {}
    for text, meaning in _list_entries():
        lexicon.setdefault(tuple(text.split()), set()).add(meaning)
    return {words: frozenset(meanings) for words, meanings in lexicon.items()}


def _list_entries() -> Iterator[tuple[str, EventMeaning]]:
    """Yield the lexicon's phrases for events and stories, each with one of its meanings."""
    movements = {"enter": w.ENTER, "cross": w.CROSS, "return": (*w.RETURN, *w.LEAVE), "leave": (*w.LEAVE, *w.LEAVE_ON)}
    for kind, texts in movements.items():
        for text in texts:
            gaits = w.GAIT_VERBS.items() if "{v}" in text else (("", ("",)),)
            for side in SIDES:
                filled_text = text.replace("{side}", side).replace("{other}", OPPOSITE[side])
                claimed_side = side if filled_text != text else ""
                for gait, verbs in gaits:
                    for verb in verbs:
                        for form in (w.conjugate, w.form_participle):
                            yield form(filled_text.replace("{v}", verb)), EventMeaning(kind, claimed_side, gait)
    for key, texts in w.ACT_WORDS.items():
        for text in texts:
            for form in (w.conjugate, w.form_participle):
                yield form(text), EventMeaning(key.split(":")[-1])
    for side in SIDES:
        yield f"from {side} to {OPPOSITE[side]}", EventMeaning("cross", side)
        yield f"comes from the {side}", EventMeaning("enter", side)
    for story, texts in w.STORIES.items():
        for text in texts:
            yield text, EventMeaning(story)
