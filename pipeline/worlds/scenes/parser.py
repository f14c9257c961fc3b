"""Parser of captions into claims, for the vocabulary of the simulated annotators; it accepts every text.

The lexicon is built from the annotators' phrases (scene_words.py), so it covers all of them. The longest phrase counts
("hot air balloon", "under a gray sky", "lying down"). Attachment:

- An attribute or a number belongs to the next noun. After "is" or "are" without a noun, it belongs to the subject.
  Elsewhere without a noun ("a dog on the red"), an attribute claims that something in the image has it. Before a
  garment, a colour or pattern belongs to the wearer, and a size or number claims nothing. Before a phrase for a place
  ("a red barn", "some trees") or the sky, an attribute claims nothing.
- A noun claims its category and a number: the stated number, else one, or at least two in the plural. A noun for more
  than one category ("animal") claims one of them; a "person" may be a child.
- A verb belongs to the noun before it, or to all nouns that "and" joins. After "is" or "are" it belongs to the subject.
  The first word of a verb phrase is enough ("eating"). A verb for more than one pose claims one of the poses that the
  category has ("floating": a boat sails, a balloon flies). If the category has none of these poses, the claim is false.
- A phrase for a place claims one of the settings in which annotators use it ("on the sand": beach or desert). A phrase
  with a landmark claims only the landmark. A phrase for the sky claims the weather, or sunset or night.
- Words outside the annotators' vocabulary claim nothing and are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

from pipeline.worlds.scenes import scene_words as w
from pipeline.worlds.scenes.scene_world import CATEGORIES, GRASSY, PALETTE

MAX_OBJECTS = 9  # objects in an image: three things with up to three objects each
ATTRIBUTES = ("colour", "pattern", "size", "count")
WORN = ("colour", "pattern")
_FUNCTION_WORDS = """
    a an the some is are and with in on at by of to it there out near over above under below beside front while day
    scene wearing
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
ARTICLES = ("a", "an")
LINKS = ("and", "of")  # words that may stand between an attribute and its noun: red and white dog


class ParsedClaim(NamedTuple):
    """Claim that a fact of this kind has one of `values`; only an ambiguous claim has more than one value.

    Kinds of a thing are category, count, colour, pattern, size and action; kinds of the scene are setting, scenery and
    weather.
    """

    kind: str
    values: frozenset[str]


LocatedClaim = tuple[ParsedClaim, range]
"""Claim with the indices of its words."""
T = TypeVar("T")


class Mention(NamedTuple):
    """Objects that one noun names: their possible `categories`, and all claims about them, including the category."""

    categories: frozenset[str]
    claims: tuple[ParsedClaim, ...]


class ParsedCaption(NamedTuple):
    """Claims of a caption, and the numbers of its words and of its unknown words."""

    mentions: tuple[Mention, ...]
    relations: tuple[tuple[str, int, int], ...]  # a relation of scene_facts.py from one mention to another
    scene: tuple[ParsedClaim, ...]
    loose: tuple[ParsedClaim, ...]  # attributes and verbs of unnamed objects
    words: int
    unknown: int


class LexiconEntry(NamedTuple):
    """Meaning of a phrase; `kind` is function_word, noun, garment, verb, relation or a kind of claim."""

    kind: str
    values: frozenset[str] = frozenset()
    plural: bool = False
    size: str = ""  # size that a noun implies: a puppy is a small dog


@lru_cache(maxsize=1 << 16)
def parse_scene_caption(text: str) -> ParsedCaption:
    """Return the claims of a caption; case and punctuation do not matter."""
    words = split_words(text)
    parser = _parse(words)
    mentions = tuple(Mention(categories, tuple(claims)) for categories, claims in parser.mentions)
    unknown = sum(word not in _build_vocabulary() for word in words)
    return ParsedCaption(
        mentions, tuple(parser.relations), tuple(parser.scene), tuple(parser.loose), len(words), unknown
    )


def find_words_of_claims(text: str) -> dict[tuple[Any, ...], set[int]]:
    """Return the indices of each claim's words in `split_words(text)`; claims are the keys of `check_claims`."""
    parser = _parse(split_words(text))
    indices: dict[tuple[Any, ...], set[int]] = {}
    for table in (parser.loose, parser.scene):
        indices.update({tuple(claim): words for claim, words in table.items()})
    for categories, claims in parser.mentions:
        for claim, words in claims.items():
            indices.setdefault((*claim, categories), set()).update(words)
    for (relation, i, j), words in parser.relations.items():
        indices.setdefault(("relation", relation, parser.mentions[i][0], parser.mentions[j][0]), set()).update(words)
    return indices


def split_words(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return re.findall(r"[^\W_]+", text.lower())


def _parse(words: list[str]) -> _Parser:
    parser = _Parser()
    for entry, span in find_longest_phrases(words, _build_lexicon()):
        parser.parse_phrase(entry, span)
    parser.attach_pending()
    return parser


class _Parser:
    """State of the parser: the claims so far, each with the indices of its words."""

    def __init__(self) -> None:
        # categories of each mention, and the claims about it
        self.mentions: list[tuple[frozenset[str], dict[ParsedClaim, set[int]]]] = []
        self.relations: dict[tuple[str, int, int], set[int]] = {}
        self.scene: dict[ParsedClaim, set[int]] = {}
        self.loose: dict[ParsedClaim, set[int]] = {}
        self.span = range(0)  # indices of the current phrase's words
        self.subject: list[int] = []  # the first mentions of this clause
        self.group: list[int] = []  # the last mentions; the same list as `subject` at the beginning of a clause
        self.article = range(0)  # index of the next noun's article, which claims the number one
        self.pending: list[LocatedClaim] = []  # attributes that wait for their noun
        self.relation = ("", range(0))  # relation that waits for its second noun
        self.joined = False  # an "and" between nouns or clauses was read, but no noun after it
        self.linked = False  # an "and" follows a waiting attribute: red and white dog
        self.copula = False  # "is" or "are" was read after the subject, but no predicate after it
        self.predicated = False  # the clause has a predicate

    def parse_phrase(self, entry: LexiconEntry, span: range) -> None:
        """Parse the next phrase; `span` holds the indices of its words."""
        self.span = span
        if entry.kind == "function_word":
            self._parse_function_word(*entry.values)
        elif entry.kind in ATTRIBUTES:
            self.pending.append((ParsedClaim(entry.kind, entry.values), span))
        elif entry.kind == "noun":
            self._parse_noun(entry)
        elif entry.kind == "garment":
            self._parse_garment()
        elif entry.kind == "verb":
            self._parse_verb(entry)
        elif entry.kind == "relation":
            self._end_noun_phrase()
            (name,) = entry.values
            self.relation = name, span
        else:  # the claim is about the scene
            self.pending = []
            self._end_noun_phrase()
            if entry.values:
                _add(self.scene, [(ParsedClaim(entry.kind, entry.values), span)])
        if entry.kind not in ("function_word", *ATTRIBUTES):
            self.article = range(0)

    def attach_pending(self) -> None:
        """Attach pending attributes when no noun follows: to the subject after "is", else to an unnamed object."""
        self.joined, self.linked = self.joined or self.linked, False
        if self.copula and self.pending:
            self._add_claims(self.subject, self.pending)
            self.copula, self.predicated = False, True
        else:
            _add(self.loose, self.pending)
        self.pending = []

    def _parse_function_word(self, word: str) -> None:
        self.article = self.span if word in ARTICLES else range(0)
        if word not in LINKS:
            self.attach_pending()
        if word == "and":
            self.joined, self.linked = self.joined or not self.pending, bool(self.pending)
        elif word in ("is", "are") and self.subject:
            self.copula, self.group = True, self.subject

    def _parse_noun(self, entry: LexiconEntry) -> None:
        index = len(self.mentions)
        self.mentions.append((entry.values, {}))
        number = frozenset("1") if not entry.plural else _list_numbers(2)
        noun_claims = [(ParsedClaim("size", frozenset((entry.size,))), self.span)] if entry.size else []
        if not any(claim.kind == "count" for claim, _ in self.pending):
            noun_claims.append((ParsedClaim("count", number), self.article or self.span))
        self._add_claims([index], [(ParsedClaim("category", entry.values), self.span), *noun_claims, *self.pending])
        if self.joined and self.group and not self.predicated:
            self.group.append(index)
        else:
            relation, span = self.relation
            if relation:
                _add(self.relations, (((relation, first, index), span) for first in self.group))
            self.group = [index]
            if not self.subject or self.joined:  # "and" after a predicate begins a clause: "is running and a dog"
                self.subject, self.predicated = self.group, False
        self.pending, self.relation, self.joined, self.copula = [], ("", range(0)), False, False
        self.linked = False

    def _parse_garment(self) -> None:
        garment_claims = [located for located in self.pending if located[0].kind in WORN]
        self.pending, self.linked = [], False
        if self.copula:
            self._add_claims(self.subject, garment_claims)
            self.copula, self.predicated = False, True
        elif self.group:
            self._add_claims(self.group[-1:], garment_claims)
        else:
            _add(self.loose, garment_claims)

    def _parse_verb(self, entry: LexiconEntry) -> None:
        group = self.group
        self._end_noun_phrase()
        for i in group:
            poses = {pose for category in self.mentions[i][0] for pose in CATEGORIES[category].poses}
            self._add_claims([i], [(ParsedClaim("action", entry.values & poses or entry.values), self.span)])
        if not group:
            _add(self.loose, [(ParsedClaim("action", entry.values), self.span)])

    def _end_noun_phrase(self) -> None:
        """End the current noun phrase before a verb, a relation, or a claim about the scene."""
        self.attach_pending()
        if self.copula:
            self.copula, self.predicated = False, True
        self.relation, self.joined = ("", range(0)), False

    def _add_claims(self, mentions: Iterable[int], claims: Sequence[LocatedClaim]) -> None:
        for i in mentions:
            _add(self.mentions[i][1], claims)


def _add(table: dict[T, set[int]], claims: Iterable[tuple[T, range]]) -> None:
    for claim, words in claims:
        table.setdefault(claim, set()).update(words)


def find_longest_phrases(words: Sequence[str], lexicon: Mapping[tuple[str, ...], T]) -> Iterator[tuple[T, range]]:
    """Yield the entries of the longest phrases, from left to right, each with the indices of its words.

    Words outside the lexicon are skipped.
    """
    longest, start = max(map(len, lexicon)), 0
    while start < len(words):
        for end in range(min(start + longest, len(words)), start, -1):
            if entry := lexicon.get(tuple(words[start:end])):
                yield entry, range(start, end)
                start = end
                break
        else:
            start += 1


@cache
def _build_lexicon() -> dict[tuple[str, ...], LexiconEntry]:
    """Return every phrase that makes a claim or joins the parts of a sentence."""
    values_by_phrase: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for kind, words, value in _list_entries():
        values_by_phrase.setdefault((kind, tuple(words)), set()).add(value)
    phrases = {words: LexiconEntry(kind, frozenset(values)) for (kind, words), values in values_by_phrase.items()}
    phrases[("sky",)] = LexiconEntry("weather")  # claims nothing, so that its colour belongs to no object
    return phrases | _list_nouns()


def _list_entries() -> Iterator[tuple[str, list[str], str]]:
    """Yield the kind, the words and one possible value of each phrase; a later kind replaces an earlier one."""
    yield from (("function_word", [word], word) for word in FUNCTION_WORDS)
    yield from (("relation", text.split(), name) for text, name, _ in w.RELATIONS if name)
    yield from (("garment", [word], word) for pair in w.GARMENT_PLURALS.items() for word in pair)
    yield from (("colour", [colour], colour) for colour in PALETTE)
    yield from (("pattern", [text], name) for name, texts in w.PATTERNS.items() for text in texts)
    for texts_by_size in w.SIZES.values():
        yield from (("size", [text], size) for size, texts in texts_by_size.items() for text in texts)
    for text, kind, number, _ in (word for words in w.COUNTS.values() for word in words):
        if text != "a":
            numbers = _list_numbers(number) if kind == "at_least" else [str(number)]
            yield from (("count", text.removeprefix("a ").split(), n) for n in numbers)
    for key, texts in w.VERBS.items():
        for words in map(str.split, texts):
            yield "verb", words, key.split(":")[-1]
            yield "verb", words[:1], key.split(":")[-1]
    for setting, places in w.PLACES.items():
        for text, _, landmark in places:
            yield ("scenery", _strip_ends(text), landmark) if landmark else ("setting", _strip_ends(text), setting)
    yield from (("setting", _strip_ends(text), setting) for setting, texts in w.SCENES.items() for text in texts)
    # every farm has grass, although annotators mention it only where an animal eats it
    yield from (("setting", ["grass"], setting) for setting in GRASSY)
    for (weather, light), texts in (*w.WEATHER.items(), *w.IT_IS.items()):
        value = weather if light == "day" else light
        for words in map(_strip_ends, texts):
            yield "weather", words, value
            yield "weather", [word for word in words if word != "is"], value  # the sun setting
            if words[-1] == "sky":
                yield "weather", ["sky", "is", *words[:-1]], value


def _list_nouns() -> dict[tuple[str, ...], LexiconEntry]:
    entries: dict[tuple[str, ...], LexiconEntry] = {}
    for category, nouns in w.NOUNS.items():
        for noun in nouns:
            for text in (noun.singular, noun.plural):
                words = tuple(text.split())
                categories = frozenset((category,)) | (entries[words].values if words in entries else frozenset())
                if noun.kind == "person":
                    categories |= {name for name, other in CATEGORIES.items() if other.kind == "child"}
                # "sheep" counts as singular unless a number precedes it
                entries[words] = LexiconEntry("noun", categories, text != noun.singular, noun.size)
    return entries


def _strip_ends(text: str) -> list[str]:
    """Return the words of a phrase without the function words at its ends: in front of some trees → trees."""
    words = text.split()
    while words[0] in FUNCTION_WORDS:
        words.pop(0)
    while words[-1] in FUNCTION_WORDS:
        words.pop()
    return words


def _list_numbers(minimum: int) -> frozenset[str]:
    return frozenset(str(n) for n in range(minimum, MAX_OBJECTS + 1))


@cache
def _build_vocabulary() -> frozenset[str]:
    """Return every word of the annotators' vocabulary."""
    texts = [place.text for places in w.PLACES.values() for place in places]
    texts += [text for table in (w.WEATHER, w.IT_IS, w.SCENES) for phrases in table.values() for text in phrases]
    return frozenset(word for text in (*texts, *w.PICTURES, *map(" ".join, _build_lexicon())) for word in text.split())
