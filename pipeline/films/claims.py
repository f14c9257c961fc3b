"""Of which films a caption's claims are true: what happens to whom, in which order, and what scenes/claims.py knows.

The lexicon is built from the annotators' own words (words.py), and the longest phrase wins. What happens is claimed of
the noun before it; "then" and "before" between two happenings claim their order, and so does "after" at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from pipeline.films import words as w
from pipeline.films.facts import Film
from pipeline.films.world import GAITS, OTHER, SIDES
from pipeline.scenes.claims import Claims
from pipeline.scenes.faithfulness import Fact
from pipeline.scenes.parser import said_by, words_of

NOT_OF_FILMS = (
    "action",
    "relation",
)  # claims of scenes' parser: a film has no one pose, and nothing stays beside another
T = TypeVar("T")
ANYBODY = frozenset(GAITS)
ORDERING = ("then", "before")


class Meaning(NamedTuple):
    """An event that a phrase may tell of; side and gait are "" where it leaves them open."""

    what: str
    side: str = ""
    gait: str = ""

    def fits(self, what: str, side: str, gait: str) -> bool:
        """Whether it tells of such an event."""
        return self.what == what and self.side in ("", side) and self.gait in ("", gait)


class Happening(NamedTuple):
    """One phrase of a caption: what it may tell of, and the categories that its subject may have."""

    meanings: frozenset[Meaning]
    categories: frozenset[str]


class ParsedFilm(NamedTuple):
    """What a caption says that happens, in its order, and which of the happenings its words put before the next."""

    happenings: tuple[Happening, ...]
    before: tuple[tuple[Happening, Happening], ...]
    stories: frozenset[str]


class FilmClaims:
    """The facts of M films."""

    def __init__(self, films: Sequence[Film]) -> None:
        self._stories = [_stories(film) for film in films]
        self._still = Claims([film.scene for film in films])
        self._happens = cache(self._judge)
        rows = [
            (number, thing.category, event[:3], event.start)
            for number, film in enumerate(films)
            for thing, events in zip(film.scene.things, film.events, strict=True)
            for event in events
        ]
        numbers, categories, kinds, starts = zip(*rows, strict=True)
        self._film, self._start = np.array(numbers), np.array(starts)  # of each event
        self._categories, self._category = _coded(categories)
        self._kinds, self._kind = _coded(kinds)

    def of(self, caption: str) -> dict[Fact, np.ndarray]:
        """Each claim of the caption, and of which films it is true, (M,) bool."""
        claims = {claim: truth for claim, truth in self._still.of(caption).items() if claim[0] not in NOT_OF_FILMS}
        parsed = parse(caption)
        for happening in parsed.happenings:
            claims["event", happening.meanings, happening.categories] = np.isfinite(self._happens(happening)[0])
        for first, second in parsed.before:
            claims["then", first, second] = self._happens(first)[0] < self._happens(second)[1]
        for story in parsed.stories:
            claims["story", frozenset((story,))] = np.array([story in those for those in self._stories])
        return claims

    def _judge(self, happening: Happening) -> tuple[np.ndarray, np.ndarray]:
        """(M,): when it begins for the first and for the last time; ∞ and −∞ where it does not."""
        first, last = np.full(len(self._stories), np.inf), np.full(len(self._stories), -np.inf)
        kinds = np.array([any(meaning.fits(*kind) for meaning in happening.meanings) for kind in self._kinds])
        who = np.array([category in happening.categories for category in self._categories])
        meant = kinds[self._kind] & who[self._category]
        np.minimum.at(first, self._film[meant], self._start[meant])
        np.maximum.at(last, self._film[meant], self._start[meant])
        return first, last


@lru_cache(maxsize=1 << 16)
def parse(text: str) -> ParsedFilm:
    """What a caption says that happens; case and punctuation do not matter."""
    words = words_of(text)
    named = sorted(
        (place, fact[-1]) for fact, places in said_by(text).items() if fact[0] == "category" for place in places
    )
    found: list[tuple[Happening, range]] = []
    stories = set()
    for meanings, place in _phrases(words):
        stories |= {meaning.what for meaning in meanings if meaning.what in w.STORIES}
        events = frozenset(meaning for meaning in meanings if meaning.what not in w.STORIES)
        if events:
            subject = [categories for start, categories in named if start < place.start]
            found.append((Happening(events, subject[-1] if subject else ANYBODY), place))
    before = tuple(
        (a, b)
        for n, ((a, here), (b, there)) in enumerate(pairwise(found))
        if not set(ORDERING).isdisjoint(words[here.stop : there.start]) or (n == 0 and words[0] == "after")
    )
    return ParsedFilm(tuple(happening for happening, _ in found), before, frozenset(stories))


def _coded(values: Sequence[T]) -> tuple[list[T], np.ndarray]:
    """The different values, and of each one its number among them."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(numbers), np.array([numbers[value] for value in values])


def _stories(film: Film) -> tuple[str, ...]:
    return ("follow",) if film.story == "lead" else (film.story,)


def _phrases(words: Sequence[str]) -> Iterator[tuple[frozenset[Meaning], range]]:
    """The longest phrases that tell of something, from left to right, each with the numbers of its words."""
    lexicon = _lexicon()
    longest, start = max(map(len, lexicon)), 0
    while start < len(words):
        for end in range(min(start + longest, len(words)), start, -1):
            if meanings := lexicon.get(tuple(words[start:end])):
                yield meanings, range(start, end)
                start = end
                break
        else:
            start += 1


@cache
def _lexicon() -> dict[tuple[str, ...], frozenset[Meaning]]:
    found: dict[tuple[str, ...], set[Meaning]] = {}
    for text, meaning in _entries():
        found.setdefault(tuple(text.split()), set()).add(meaning)
    return {words: frozenset(meanings) for words, meanings in found.items()}


def _entries() -> Iterator[tuple[str, Meaning]]:
    """Everything that annotators say of what happens, and a meaning of it."""
    travels = {"enter": w.ENTER, "cross": w.CROSS, "return": (*w.RETURN, *w.LEAVE), "leave": (*w.LEAVE, *w.LEAVE_ON)}
    for what, texts in travels.items():
        for text in texts:
            gaits = w.GAIT_VERBS.items() if "{v}" in text else (("", ("",)),)
            for side in SIDES:
                place = text.replace("{side}", side).replace("{other}", OTHER[side])
                meant = side if place != text else ""
                for gait, verbs in gaits:
                    for verb in verbs:
                        for form in (w.finite, w.participle):
                            yield form(place.replace("{v}", verb)), Meaning(what, meant, gait)
    for key, texts in w.ACT_WORDS.items():
        for text in texts:
            for form in (w.finite, w.participle):
                yield form(text), Meaning(key.split(":")[-1])
    for side in SIDES:
        yield f"from {side} to {OTHER[side]}", Meaning("cross", side)
        yield f"comes from the {side}", Meaning("enter", side)
    for story, texts in w.STORIES.items():
        for text in texts:
            yield text, Meaning(story)
