"""Truth of a caption's claims in many scenes at once, equal to the results of faithfulness.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from pipeline.worlds.scenes.faithfulness import Fact, list_scene_values
from pipeline.worlds.scenes.parser import Mention, ParsedClaim, parse_scene_caption
from pipeline.worlds.scenes.scene_facts import CONVERSE, Scene, relation_holds

ATTRIBUTE_OF: dict[str, str] = {  # the attribute of a thing to which each kind of claim refers
    "action": "pose",
    **{kind: kind for kind in ("category", "count", "colour", "pattern", "size")},
}


class SceneClaims:
    """Checker of captions' claims in M scenes with at most T things, with a cache of results."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self._scenes = scenes
        self._max_things = max(len(scene.things) for scene in scenes)
        # text (M, T) for each kind
        self._attributes = {kind: self._list_values(attribute) for kind, attribute in ATTRIBUTE_OF.items()}
        self._counts = np.array([self._pad([thing.count for thing in scene.things], 0) for scene in scenes])
        self._get_mention_truth = cache(self._judge_mention)
        self._get_relation_truth = cache(self._judge_relation)
        self._get_related = cache(self._find_related)
        self._get_scene_truth = cache(self._judge_scene)
        self._get_loose_truth = cache(self._judge_loose)

    def check(self, caption: str) -> dict[Fact, np.ndarray]:
        """Return each claim of the caption with its truth (M,) bool in the scenes; `check_claims` checks one scene."""
        parsed_caption = parse_scene_caption(caption)
        claims: dict[Fact, np.ndarray] = {}

        def add(claim: Fact, truth: np.ndarray) -> None:
            claims[claim] = truth | claims[claim] if claim in claims else truth

        for mention in parsed_caption.mentions:
            for claim, truth in zip(mention.claims, self._get_mention_truth(mention)[1], strict=True):
                add((*claim, mention.categories), truth)
        for relation, i, j in parsed_caption.relations:
            a, b = parsed_caption.mentions[i], parsed_caption.mentions[j]
            add(("relation", relation, a.categories, b.categories), self._get_relation_truth(relation, a, b))
        for claim in parsed_caption.scene:
            add(claim, self._get_scene_truth(claim))
        mention_claims = {claim for mention in parsed_caption.mentions for claim in mention.claims}
        for claim in parsed_caption.loose:
            if claim not in mention_claims:
                add(claim, self._get_loose_truth(claim))
        return claims

    def _judge_mention(self, mention: Mention) -> tuple[np.ndarray, np.ndarray]:
        """Return the things (M, T) that a noun may name, and the truth (K, M) of each of its claims in each scene."""
        possible = np.isin(self._attributes["category"], [*mention.categories])
        total_counts = (self._counts * possible).sum(1, keepdims=True).astype(str)
        truth = np.stack(
            [np.isin(self._attributes[claim.kind], [*claim.values]) for claim in mention.claims]
        )  # (K, M, T)
        for claim_truth, claim in zip(truth, mention.claims, strict=True):
            if claim.kind == "count":
                claim_truth |= np.isin(total_counts, [*claim.values])
        scores = np.where(possible, truth.sum(0), -1)
        matches = possible & (scores == scores.max(1, keepdims=True))
        first_match = matches.argmax(1)
        return matches, truth[:, np.arange(len(first_match)), first_match] & matches.any(1)

    def _judge_relation(self, relation: str, a: Mention, b: Mention) -> np.ndarray:
        pairs = self._get_mention_truth(a)[0][:, :, None] & self._get_mention_truth(b)[0][:, None, :]
        return (pairs & self._get_related(relation)).any((1, 2))

    def _find_related(self, relation: str) -> np.ndarray:
        """Return whether the relation holds from one thing to another, (M, T, T)."""
        if relation in CONVERSE:
            return self._get_related(CONVERSE[relation]).transpose(0, 2, 1)
        related = np.zeros((len(self._scenes), self._max_things, self._max_things), bool)
        for n, scene in enumerate(self._scenes):
            for i, a in enumerate(scene.things):
                for j, b in enumerate(scene.things):
                    related[n, i, j] = i != j and relation_holds(relation, a, b)
        return related

    def _judge_scene(self, claim: ParsedClaim) -> np.ndarray:
        return np.array([not claim.values.isdisjoint(list_scene_values(scene, claim.kind)) for scene in self._scenes])

    def _judge_loose(self, claim: ParsedClaim) -> np.ndarray:
        return np.isin(self._attributes[claim.kind], [*claim.values]).max(1)

    def _list_values(self, attribute: str) -> np.ndarray:
        """Return the things' attribute as text (M, T), padded with ""."""
        pad = partial(self._pad, padding="")
        return np.array([pad([str(getattr(thing, attribute)) for thing in s.things]) for s in self._scenes])

    def _pad(self, values: list[Any], padding: Any) -> list[Any]:
        return values + [padding] * (self._max_things - len(values))
