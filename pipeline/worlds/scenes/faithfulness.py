"""Faithfulness of captions to their scenes, judged exactly by the facts of the drawings.

Precision is the share of a caption's claims (parser.py) that are true. Its recall, `told`, is the share of the scene's
facts that the caption states. A thing's facts are its category, count, colour and action, its pattern unless plain, and
its size unless medium. Further facts are each pair of things with some relation, and the setting, landmarks and
weather.

- A noun names the thing of its categories for which most of its claims are true. All its claims are judged by that
  thing. "Two people" may also be a man and a woman. A relation is true if it holds between two such things.
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
from pipeline.worlds.scenes.parser import Mention, ParsedClaim, parse_scene_caption, split_words, words_of_claims
from pipeline.worlds.scenes.scene_facts import Scene, Thing, atmosphere, relation_holds
from pipeline.worlds.scenes.scene_words import RELATIONS

KINDS = ("category", "count", "colour", "pattern", "size", "action", "relation", "setting", "scenery", "weather")
Fact = tuple[Any, ...]
"""Kind of a fact, followed by its identity within the scene."""


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """Counts for N captions: (N, 10) int64 by caption and kind (`KINDS`), and of words (N,) int64."""

    claims: np.ndarray
    true: np.ndarray
    facts: np.ndarray
    told: np.ndarray
    words: np.ndarray
    unknown: np.ndarray  # words outside the annotators' vocabulary

    def summary(self) -> dict[str, Any]:
        """Return shares over all captions together, and by kind; a share of an empty set is left out.

        precision, told, claims_per_caption, unknown_words (a share of the words), and by_kind: for each kind precision,
        told and claims (per caption).
        """
        number = len(self.words)
        claims, true, facts, told = (each.sum(0) for each in (self.claims, self.true, self.facts, self.told))
        shares = [  # by kind
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
        """Return counts per caption over all kinds: claims, claims_true, facts, facts_told."""
        counts = {"claims": self.claims, "claims_true": self.true, "facts": self.facts, "facts_told": self.told}
        return {name: each.sum(1).tolist() for name, each in counts.items()}


def faithfulness(captions: Sequence[str], scenes: Sequence[Scene]) -> Faithfulness:
    """Judge N captions, each by its scene.

    Raises UserError if there are none or if captions and scenes differ in number.
    """
    if len(captions) != len(scenes) or not len(captions):
        raise UserError(
            f"faithfulness: need as many captions as scenes, one or more (got {len(captions)} and {len(scenes)})"
        )
    counts = np.zeros((4, len(captions), len(KINDS)), np.int64)
    words = np.zeros((2, len(captions)), np.int64)
    for n, (caption, scene) in enumerate(zip(captions, scenes, strict=True)):
        claims, told = check_claims(caption, scene)
        for claim, truth in claims.items():
            counts[:2, n, KINDS.index(claim[0])] += 1, truth
        for fact in list_facts(scene):
            counts[2:, n, KINDS.index(fact[0])] += 1, fact in told
        reading = parse_scene_caption(caption)
        words[:, n] = reading.words, reading.unknown
    return Faithfulness(*counts, *words)


def check_claims(caption: str, scene: Scene) -> tuple[dict[Fact, bool], set[Fact]]:
    """Return the truth of each claim of a caption (its kind first), and the facts of the scene that it states."""
    reading = parse_scene_caption(caption)
    claims: dict[Fact, bool] = {}
    told: set[Fact] = set()
    things = scene.things
    fitting = [_fitting(mention, scene) for mention in reading.mentions]
    for mention, fits in zip(reading.mentions, fitting, strict=True):
        for claim in mention.claims:
            key: Fact = (*claim, mention.categories)
            truth = bool(fits) and _true_of(claim, mention, things[fits[0]], scene)
            claims[key] = truth or claims.get(key, False)
            if fits and claim.values == {_value(things[fits[0]], claim.kind)}:
                told.add((claim.kind, fits[0]))
    for relation, i, j in reading.relations:
        key = ("relation", relation, reading.mentions[i].categories, reading.mentions[j].categories)
        pairs = [
            (a, b)
            for a, b in product(fitting[i], fitting[j])
            if a != b and relation_holds(relation, things[a], things[b])
        ]
        claims[key] = bool(pairs) or claims.get(key, False)
        if pairs:
            told.add(("relation", *sorted(pairs[0])))
    for claim in reading.scene:
        there = claim.values & _of_the_scene(scene, claim.kind)
        claims[claim] = bool(there)
        if there == claim.values and len(there) == 1:
            told.add((claim.kind, *there))
    named = {claim for mention in reading.mentions for claim in mention.claims}
    for claim in reading.loose:
        if claim not in named:
            claims[claim] = any(_value(thing, claim.kind) in claim.values for thing in things)
    return claims, told


def check_words(caption: str, scene: Scene) -> list[tuple[str, bool | None]]:
    """Return the caption's words, split at spaces, each with whether all its claims are true; None: no claim."""
    claims, _ = check_claims(caption, scene)
    by_number: dict[int, bool] = {}
    for claim, numbers in words_of_claims(caption).items():
        for n in numbers if claim in claims else ():
            by_number[n] = by_number.get(n, True) and claims[claim]
    words, first = [], 0
    for word in caption.split():
        truths = [by_number[n] for n in range(first, first + len(split_words(word))) if n in by_number]
        words.append((word, all(truths) if truths else None))
        first += len(split_words(word))
    return words


def list_facts(scene: Scene) -> Iterator[Fact]:
    """Yield all facts of a scene that a caption can state, kind first."""
    for i, thing in enumerate(scene.things):
        yield from ((kind, i) for kind in ("category", "count", "colour", "action"))
        if thing.pattern != "plain":
            yield "pattern", i
        if thing.size != "medium":
            yield "size", i
    relations = {relation for _, relation, _ in RELATIONS if relation}
    for (i, a), (j, b) in combinations(enumerate(scene.things), 2):
        if any(relation_holds(relation, a, b) for relation in relations):
            yield "relation", i, j
    for kind in ("setting", "scenery", "weather"):
        yield from ((kind, value) for value in _of_the_scene(scene, kind))


def _fitting(mention: Mention, scene: Scene) -> list[int]:
    """Return the things that a noun may name: those for which most of its claims are true."""
    fits = {
        i: sum(_true_of(claim, mention, thing, scene) for claim in mention.claims)
        for i, thing in enumerate(scene.things)
        if thing.category in mention.categories
    }
    return [i for i, fit in fits.items() if fit == max(fits.values())]


def _true_of(claim: ParsedClaim, mention: Mention, thing: Thing, scene: Scene) -> bool:
    if claim.kind == "count":
        together = sum(other.count for other in scene.things if other.category in mention.categories)
        return not claim.values.isdisjoint((str(thing.count), str(together)))
    return _value(thing, claim.kind) in claim.values


def _value(thing: Thing, kind: str) -> str:
    return str(getattr(thing, "pose" if kind == "action" else kind))


def _of_the_scene(scene: Scene, kind: str) -> frozenset[str]:
    values = {"setting": [scene.setting], "scenery": scene.scenery, "weather": [atmosphere(scene)]}
    return frozenset(values[kind])


def _share(name: str, part: Any, whole: Any) -> dict[str, float]:
    return {name: float(part / whole)} if whole else {}
