"""Faithfulness of captions to their scenes, judged exactly by the facts of the drawings.

Precision is the share of a caption's claims (parser.py) that are true. Recall, `told`, is the share of the scene's
facts that the caption states. A thing's facts are its category, count, colour and action, its pattern unless it is
plain, and its size unless it is medium. Each pair of things with a relation, the setting, each landmark and the
weather are facts, too.

- A noun may name each thing in its categories for which the largest number of its claims is true. The first of these
  things decides all claims of the noun, except that "two people" may also be a man and a woman. A relation is true if
  it holds between two such things.
- A claim counts once, however often it is repeated.
- Only an unambiguous claim states a fact. "Animal", "several" or "on the sand" may be true, but state no fact.
- A true relation states the relation of one pair of things, even if its nouns are ambiguous ("an animal").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from pipeline.errors import UserError
from pipeline.worlds.scenes.parser import Mention, ParsedClaim, find_words_of_claims, parse_scene_caption, split_words
from pipeline.worlds.scenes.scene_facts import Scene, Thing, name_atmosphere, relation_holds
from pipeline.worlds.scenes.scene_words import RELATIONS

KINDS = ("category", "count", "colour", "pattern", "size", "action", "relation", "setting", "scenery", "weather")
Fact = tuple[Any, ...]
"""Kind of a fact, followed by its identity within the scene."""


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """Counts for N captions, int64; K = 10 kinds of claims and facts (`KINDS`)."""

    claims: np.ndarray  # (N, K)
    true: np.ndarray  # (N, K): true claims
    facts: np.ndarray  # (N, K): facts of the scene
    told: np.ndarray  # (N, K): facts that the caption states
    words: np.ndarray  # (N,)
    unknown: np.ndarray  # (N,): words outside the annotators' vocabulary

    def summary(self) -> dict[str, Any]:
        """Return shares over all captions together, and by kind; a share of an empty set is omitted.

        Keys are precision, told, claims_per_caption, unknown_words (a share of the words) and by_kind. by_kind has
        precision, told and claims (per caption) of each kind.
        """
        caption_count = len(self.words)
        claims, true, facts, told = (counts.sum(0) for counts in (self.claims, self.true, self.facts, self.told))
        shares = [  # by kind
            {
                **_make_share("precision", true[k], claims[k]),
                **_make_share("told", told[k], facts[k]),
                "claims": float(claims[k] / caption_count),
            }
            for k in range(len(KINDS))
        ]
        return {
            **_make_share("precision", true.sum(), claims.sum()),
            **_make_share("told", told.sum(), facts.sum()),
            "claims_per_caption": float(claims.sum() / caption_count),
            **_make_share("unknown_words", self.unknown.sum(), self.words.sum()),
            "by_kind": dict(zip(KINDS, shares, strict=True)),
        }

    def columns(self) -> dict[str, list[int]]:
        """Return counts per caption over all kinds: claims, claims_true, facts, facts_told."""
        counts = {"claims": self.claims, "claims_true": self.true, "facts": self.facts, "facts_told": self.told}
        return {name: array.sum(1).tolist() for name, array in counts.items()}


def judge_faithfulness(captions: Sequence[str], scenes: Sequence[Scene]) -> Faithfulness:
    """Judge N captions, each by its scene.

    Raises UserError if there are no captions, or if captions and scenes differ in number.
    """
    if len(captions) != len(scenes) or not len(captions):
        raise UserError(
            f"faithfulness: need as many captions as scenes, one or more (got {len(captions)} and {len(scenes)})"
        )
    counts = np.zeros((4, len(captions), len(KINDS)), np.int64)
    words = np.zeros((2, len(captions)), np.int64)
    for n, (caption, scene) in enumerate(zip(captions, scenes, strict=True)):
        claims, stated_facts = check_claims(caption, scene)
        for claim, truth in claims.items():
            counts[:2, n, KINDS.index(claim[0])] += 1, truth
        for fact in list_facts(scene):
            counts[2:, n, KINDS.index(fact[0])] += 1, fact in stated_facts
        parsed_caption = parse_scene_caption(caption)
        words[:, n] = parsed_caption.words, parsed_caption.unknown
    return Faithfulness(*counts, *words)


def check_claims(caption: str, scene: Scene) -> tuple[dict[Fact, bool], set[Fact]]:
    """Return the truth of each claim of a caption (its kind first), and the scene's facts that the caption states."""
    parsed_caption = parse_scene_caption(caption)
    claims: dict[Fact, bool] = {}
    stated_facts: set[Fact] = set()
    things = scene.things
    matches = [_find_best_matches(mention, scene) for mention in parsed_caption.mentions]
    for mention, indices in zip(parsed_caption.mentions, matches, strict=True):
        for claim in mention.claims:
            key: Fact = (*claim, mention.categories)
            truth = bool(indices) and _is_claim_true(claim, mention, things[indices[0]], scene)
            claims[key] = truth or claims.get(key, False)
            if indices and claim.values == {_get_value(things[indices[0]], claim.kind)}:
                stated_facts.add((claim.kind, indices[0]))
    for relation, i, j in parsed_caption.relations:
        key = ("relation", relation, parsed_caption.mentions[i].categories, parsed_caption.mentions[j].categories)
        pairs = [
            (a, b)
            for a, b in product(matches[i], matches[j])
            if a != b and relation_holds(relation, things[a], things[b])
        ]
        claims[key] = bool(pairs) or claims.get(key, False)
        if pairs:
            stated_facts.add(("relation", *sorted(pairs[0])))
    for claim in parsed_caption.scene:
        true_values = claim.values & list_scene_values(scene, claim.kind)
        claims[claim] = bool(true_values)
        if true_values == claim.values and len(true_values) == 1:
            stated_facts.add((claim.kind, *true_values))
    mention_claims = {claim for mention in parsed_caption.mentions for claim in mention.claims}
    for claim in parsed_caption.loose:
        if claim not in mention_claims:
            claims[claim] = any(_get_value(thing, claim.kind) in claim.values for thing in things)
    return claims, stated_facts


def check_words(caption: str, scene: Scene) -> list[tuple[str, bool | None]]:
    """Return the words of a caption, each with whether all its claims are true; None: the word claims nothing."""
    claims, _ = check_claims(caption, scene)
    truth_by_word: dict[int, bool] = {}
    for claim, indices in find_words_of_claims(caption).items():
        for n in indices if claim in claims else ():
            truth_by_word[n] = truth_by_word.get(n, True) and claims[claim]
    words, start = [], 0
    for word in caption.split():
        truths = [truth_by_word[n] for n in range(start, start + len(split_words(word))) if n in truth_by_word]
        words.append((word, all(truths) if truths else None))
        start += len(split_words(word))
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
        yield from ((kind, value) for value in list_scene_values(scene, kind))


def _find_best_matches(mention: Mention, scene: Scene) -> list[int]:
    """Return the indices of the things that a noun may name: those with the largest number of true claims."""
    scores = {
        i: sum(_is_claim_true(claim, mention, thing, scene) for claim in mention.claims)
        for i, thing in enumerate(scene.things)
        if thing.category in mention.categories
    }
    return [i for i, score in scores.items() if score == max(scores.values())]


def _is_claim_true(claim: ParsedClaim, mention: Mention, thing: Thing, scene: Scene) -> bool:
    if claim.kind == "count":
        total_count = sum(other.count for other in scene.things if other.category in mention.categories)
        return not claim.values.isdisjoint((str(thing.count), str(total_count)))
    return _get_value(thing, claim.kind) in claim.values


def _get_value(thing: Thing, kind: str) -> str:
    return str(getattr(thing, "pose" if kind == "action" else kind))


def list_scene_values(scene: Scene, kind: str) -> frozenset[str]:
    """Return the true values of a claim about the scene; `kind` is setting, scenery or weather."""
    values = {"setting": [scene.setting], "scenery": scene.scenery, "weather": [name_atmosphere(scene)]}
    return frozenset(values[kind])


def _make_share(name: str, part: Any, whole: Any) -> dict[str, float]:
    return {name: float(part / whole)} if whole else {}
