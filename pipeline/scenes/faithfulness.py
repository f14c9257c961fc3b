"""Whether captions are true of their scenes, judged exactly by the facts that were written when they were drawn.

*Precision* is the share of a caption's claims (parser.py) that are true, *told* its recall: the share of the scene's
facts that it states. The facts: category, count, colour and action of each thing, its pattern unless plain, its size
unless medium; each pair of things between which some relation holds; setting, landmarks and weather.

- A noun is about the thing of its categories of which most of its claims are true, and all its claims are judged by
  that thing. "Two people" may also be a man and a woman. A relation is true if it holds between two such things.
- A claim counts once, however often it is repeated.
- Only an unambiguous claim states a fact: "animal", "several" or "on the sand" may be true and state none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from pipeline.errors import UserError
from pipeline.scenes.facts import Scene, Thing, atmosphere, related
from pipeline.scenes.parser import Mention, Parsed, parse, said_by, words_of
from pipeline.scenes.words import RELATIONS

KINDS = ("category", "count", "colour", "pattern", "size", "action", "relation", "setting", "scenery", "weather")
Fact = tuple[Any, ...]
"""A kind first, then what identifies the fact within its scene."""


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """Counts of N captions, (N, 10) int64 by caption and by kind (`KINDS`), of words (N,) int64."""

    claims: np.ndarray
    true: np.ndarray
    facts: np.ndarray
    told: np.ndarray
    words: np.ndarray
    unknown: np.ndarray  # words outside the annotators' vocabulary

    def summary(self) -> dict[str, Any]:
        """Shares over all captions together, by kind too; a share of nothing is left out.

        precision, told, claims_per_caption, unknown_words (a share of the words), and by_kind: for each kind
        precision, told and claims (per caption).
        """
        number = len(self.words)
        claims, true, facts, told = (each.sum(0) for each in (self.claims, self.true, self.facts, self.told))
        shares = [  # of each kind
            {
                **_share("precision", true[k], claims[k]),
                **_share("told", told[k], facts[k]),
                "claims": float(claims[k] / number),
            }
            for k in range(len(KINDS))
        ]
        return {
            **_share("precision", true.sum(), claims.sum()),
            **_share("told", told.sum(), facts.sum()),
            "claims_per_caption": float(claims.sum() / number),
            **_share("unknown_words", self.unknown.sum(), self.words.sum()),
            "by_kind": dict(zip(KINDS, shares, strict=True)),
        }

    def columns(self) -> dict[str, list[int]]:
        """Per caption, all kinds together: claims, claims_true, facts, facts_told."""
        counts = {"claims": self.claims, "claims_true": self.true, "facts": self.facts, "facts_told": self.told}
        return {name: each.sum(1).tolist() for name, each in counts.items()}


def faithfulness(captions: Sequence[str], scenes: Sequence[Scene]) -> Faithfulness:
    """Judge N captions, each by the scene that it is of.

    Raises UserError where there are none or the two differ in number.
    """
    if len(captions) != len(scenes) or not len(captions):
        raise UserError(
            f"faithfulness: {len(captions)} captions of {len(scenes)} scenes; give one scene each, and some"
        )
    counts = np.zeros((4, len(captions), len(KINDS)), np.int64)
    words = np.zeros((2, len(captions)), np.int64)
    for n, (caption, scene) in enumerate(zip(captions, scenes, strict=True)):
        claims, told = verdicts(caption, scene)
        for claim, truth in claims.items():
            counts[:2, n, KINDS.index(claim[0])] += 1, truth
        for fact in facts_of(scene):
            counts[2:, n, KINDS.index(fact[0])] += 1, fact in told
        reading = parse(caption)
        words[:, n] = reading.words, reading.unknown
    return Faithfulness(*counts, *words)


def verdicts(caption: str, scene: Scene) -> tuple[dict[Fact, bool], set[Fact]]:
    """Each claim of a caption (its kind first) and whether it is true, and the facts of the scene that it states."""
    reading = parse(caption)
    claims: dict[Fact, bool] = {}
    told: set[Fact] = set()
    things = scene.things
    fitting = [_fitting(mention, scene) for mention in reading.mentions]
    for mention, fits in zip(reading.mentions, fitting, strict=True):
        for said in mention.said:
            key: Fact = (*said, mention.categories)
            truth = bool(fits) and _true_of(said, mention, things[fits[0]], scene)
            claims[key] = truth or claims.get(key, False)
            if fits and said.values == {_value(things[fits[0]], said.kind)}:
                told.add((said.kind, fits[0]))
    for relation, i, j in reading.relations:
        key = ("relation", relation, reading.mentions[i].categories, reading.mentions[j].categories)
        pairs = [
            (a, b) for a, b in product(fitting[i], fitting[j]) if a != b and related(relation, things[a], things[b])
        ]
        claims[key] = bool(pairs) or claims.get(key, False)
        if pairs:
            told.add(("relation", *sorted(pairs[0])))
    for said in reading.scene:
        there = said.values & _of_the_scene(scene, said.kind)
        claims[said] = bool(there)
        if there == said.values and len(there) == 1:
            told.add((said.kind, *there))
    named = {said for mention in reading.mentions for said in mention.said}
    for said in reading.loose:
        if said not in named:
            claims[said] = any(_value(thing, said.kind) in said.values for thing in things)
    return claims, told


def verdict_of_words(caption: str, scene: Scene) -> list[tuple[str, bool | None]]:
    """The words of a caption, divided by spaces, each with whether all that it claims is true; None: claims nothing."""
    claims, _ = verdicts(caption, scene)
    by_number: dict[int, bool] = {}
    for claim, numbers in said_by(caption).items():
        for n in numbers if claim in claims else ():
            by_number[n] = by_number.get(n, True) and claims[claim]
    words, first = [], 0
    for word in caption.split():
        found = [by_number[n] for n in range(first, first + len(words_of(word))) if n in by_number]
        words.append((word, all(found) if found else None))
        first += len(words_of(word))
    return words


def facts_of(scene: Scene) -> Iterator[Fact]:
    """All facts of a scene that a caption can state, kind first."""
    for i, thing in enumerate(scene.things):
        yield from ((kind, i) for kind in ("category", "count", "colour", "action"))
        if thing.pattern != "plain":
            yield "pattern", i
        if thing.size != "medium":
            yield "size", i
    relations = {relation for _, relation, _ in RELATIONS if relation}
    for (i, a), (j, b) in combinations(enumerate(scene.things), 2):
        if any(related(relation, a, b) for relation in relations):
            yield "relation", i, j
    for kind in ("setting", "scenery", "weather"):
        yield from ((kind, value) for value in _of_the_scene(scene, kind))


def _fitting(mention: Mention, scene: Scene) -> list[int]:
    """The things that a noun may be about: those of which most of its claims are true."""
    fits = {
        i: sum(_true_of(said, mention, thing, scene) for said in mention.said)
        for i, thing in enumerate(scene.things)
        if thing.category in mention.categories
    }
    return [i for i, fit in fits.items() if fit == max(fits.values())]


def _true_of(said: Parsed, mention: Mention, thing: Thing, scene: Scene) -> bool:
    if said.kind == "count":
        together = sum(other.count for other in scene.things if other.category in mention.categories)
        return not said.values.isdisjoint((str(thing.count), str(together)))
    return _value(thing, said.kind) in said.values


def _value(thing: Thing, kind: str) -> str:
    return str(getattr(thing, "pose" if kind == "action" else kind))


def _of_the_scene(scene: Scene, kind: str) -> frozenset[str]:
    values = {"setting": [scene.setting], "scenery": scene.scenery, "weather": [atmosphere(scene)]}
    return frozenset(values[kind])


def _share(name: str, part: Any, whole: Any) -> dict[str, float]:
    return {name: float(part / whole)} if whole else {}
