"""Captions are parsed into the claims of their simulated annotators, and no text is refused."""

import pytest

from pipeline.worlds.scenes import scene_words as w
from pipeline.worlds.scenes.parser import (
    ParsedCaption,
    ParsedClaim,
    _build_lexicon,
    _build_vocabulary,
    parse_scene_caption,
)
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import SceneClaim, describe_scene
from pipeline.worlds.scenes.scene_world import CATEGORIES

PEOPLE, CHILDREN = "boy|girl|man|woman", "boy|girl"
ANIMALS = "bird|cat|cow|dog|horse|sheep"
TWO_OR_MORE, THREE_OR_MORE = "2|3|4|5|6|7|8|9", "3|4|5|6|7|8|9"


def format_claim(claim: ParsedClaim) -> str:
    return f"{claim.kind} {'|'.join(sorted(claim.values))}"


def list_mentions(text: str) -> list[set[str]]:
    return [{format_claim(claim) for claim in mention.claims} for mention in parse_scene_caption(text).mentions]


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("a dog", {"category dog", "count 1"}),
        ("dog", {"category dog", "count 1"}),
        ("the sheep", {"category sheep", "count 1"}),
        ("two sheep", {"category sheep", "count 2"}),
        ("dogs", {"category dog", f"count {TWO_OR_MORE}"}),
        ("some dogs", {"category dog", f"count {TWO_OR_MORE}"}),
        ("a group of dogs", {"category dog", f"count {THREE_OR_MORE}"}),
        ("a couple of dogs", {"category dog", "count 2"}),
        ("a puppy", {"category dog", "size small", "count 1"}),
        ("two tall ladies", {"category woman", "size large", "count 2"}),
        ("a person", {f"category {PEOPLE}", "count 1"}),
        ("three kids", {f"category {CHILDREN}", "count 3"}),
        ("an animal", {f"category {ANIMALS}", "count 1"}),
        ("a striped orange hot air balloon", {"category balloon", "pattern striped", "colour orange", "count 1"}),
        ("a red and white bus", {"category bus", "colour red", "colour white", "count 1"}),
        ("a brown brown dog", {"category dog", "colour brown", "count 1"}),
        ("a man in a blue shirt", {"category man", "colour blue", "count 1"}),
        ("two women wearing striped dresses", {"category woman", "pattern striped", "count 2"}),
        ("a man is wearing a red sweater", {"category man", "colour red", "count 1"}),
        ("a boat floating", {"category boat", "action sailing", "count 1"}),
        ("a balloon floating", {"category balloon", "action flying", "count 1"}),
        ("a tent floating", {"category tent", "action flying|sailing", "count 1"}),
        ("a cat lying on the grass", {"category cat", "action sleeping", "count 1"}),
        ("a cow is eating", {"category cow", "action grazing", "count 1"}),
        ("the dog on the beach is brown.", {"category dog", "count 1", "colour brown"}),
        ("a dog is running and jumping", {"category dog", "count 1", "action running", "action jumping"}),
        ("a dog under an orange sky", {"category dog", "count 1"}),
        ("a dog near a red barn", {"category dog", "count 1"}),
        ("a dog near some trees", {"category dog", "count 1"}),
    ],
)
def test_claims_about_one_noun_are_parsed(text: str, claims: set[str]) -> None:
    assert list_mentions(text) == [claims]
    assert parse_scene_caption(text).relations == ()
    assert parse_scene_caption(text).loose == ()


ONE = "count 1"


@pytest.mark.parametrize(
    ("text", "claims", "relations"),
    [
        ("a man and a dog are running", [{"man", "running"}, {"dog", "running"}], []),
        ("a man in a red shirt and a dog are running", [{"man", "red", "running"}, {"dog", "running"}], []),
        ("a man and a boy in a red shirt", [{"man"}, {"boy", "red"}], []),
        ("a man is running with a dog", [{"man", "running"}, {"dog"}], []),
        ("the man near a dog is running", [{"man", "running"}, {"dog"}], [("near", 0, 1)]),
        ("the man beside a boy is wearing a red shirt", [{"man", "red"}, {"boy"}], [("beside", 0, 1)]),
        ("a man is next to a boy in a red shirt", [{"man"}, {"boy", "red"}], [("beside", 0, 1)]),
        (
            "the dog running near a black cat is brown",
            [{"dog", "running", "brown"}, {"cat", "black"}],
            [("near", 0, 1)],
        ),
        ("a man in front of a red and white dog", [{"man"}, {"dog", "red", "white"}], [("in_front_of", 0, 1)]),
        (
            "the man near a black and white cat is running",
            [{"man", "running"}, {"cat", "black", "white"}],
            [("near", 0, 1)],
        ),
        (
            "a man is near a black and white cat and a dog is running",
            [{"man"}, {"cat", "black", "white"}, {"dog", "running"}],
            [("near", 0, 1)],
        ),
        ("a dog is brown and a cat is black", [{"dog", "brown"}, {"cat", "black"}], []),
        ("a dog is running and there is a cat sitting", [{"dog", "running"}, {"cat", "sitting"}], []),
        ("a dog is in the park and a cat is sleeping", [{"dog"}, {"cat", "sleeping"}], []),
        ("there is a dog to the left of a cat in the rain", [{"dog"}, {"cat"}], [("left_of", 0, 1)]),
        ("on the beach a kite flying over a boat", [{"kite", "flying"}, {"boat"}], [("above", 0, 1)]),
        ("a dog and a cat in front of a house", [{"dog"}, {"cat"}, {"house"}], [("in_front_of", i, 2) for i in (0, 1)]),
        ("a dog by the lake with a cat", [{"dog"}, {"cat"}], []),  # "by" belongs to "by the lake" and is no relation
    ],
)
def test_attachment_of_attributes_verbs_and_relations(
    text: str, claims: list[set[str]], relations: list[tuple[str, int, int]]
) -> None:
    assert [{item.split()[1] for item in mention - {ONE}} for mention in list_mentions(text)] == claims
    assert list(parse_scene_caption(text).relations) == relations
    assert parse_scene_caption(text).loose == ()


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("a sandy beach", {"setting beach"}),
        ("on the sand", {"setting beach|desert"}),
        ("by the water", {"setting beach|lake"}),
        ("on the grass", {"setting farm|lake|park"}),
        ("the shore of a lake", {"setting lake"}),
        ("a snowy field", {"setting snow"}),
        ("in a field", {"setting farm"}),
        ("in front of snowy mountains", {"scenery mountains"}),
        ("near a barn in the snow", {"scenery barn", "setting snow"}),
        ("it is a rainy day", {"weather rainy"}),
        ("the sun is setting", {"weather sunset"}),
        ("the sun is shining", {"weather sunny"}),
        ("the sky is gray", {"weather cloudy"}),
        ("under a red sky", set()),
        ("in the park in the park", {"setting park"}),
    ],
)
def test_claims_about_the_scene_are_parsed(text: str, claims: set[str]) -> None:
    parsed = parse_scene_caption(text)
    assert {format_claim(each) for each in parsed.scene} == claims
    assert len(parsed.scene) == len(claims)
    assert parsed.mentions == parsed.loose == ()


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ("a dog on the red", {"colour red"}),
        ("a dog with a small striped a", {"size small", "pattern striped"}),
        ("running in the park", {"action running"}),
        ("in a blue shirt", {"colour blue"}),
        ("two", {"count 2"}),
        ("a dog in white in the park", {"colour white"}),
    ],
)
def test_attributes_and_verbs_without_a_noun_belong_to_no_mention(text: str, loose: set[str]) -> None:
    assert {format_claim(claim) for claim in parse_scene_caption(text).loose} == loose
    assert not any(loose & claims for claims in list_mentions(text))


def test_unknown_words_are_skipped_and_counted() -> None:
    parsed = parse_scene_caption("A fluffy DOG, runs: swiftly éte <unk> with 3 cats!")
    claims = [claim for mention in parsed.mentions for claim in mention.claims]
    assert [format_claim(claim) for claim in claims if claim.kind == "category"] == ["category dog", "category cat"]
    assert (parsed.words, parsed.unknown) == (10, 6)


@pytest.mark.parametrize(
    "text", ["", " . ", "and and is are of", "near near a", "is red", "wearing a shirt and", "of the"]
)
def test_any_text_is_parsed(text: str) -> None:
    assert isinstance(parse_scene_caption(text), ParsedCaption)


def test_any_sequence_of_known_words_is_parsed() -> None:
    words = sorted(_build_vocabulary())
    for step in range(1, 40):
        sequence = [words[(i * step * 7 + i * i) % len(words)] for i in range(60)]
        parsed = parse_scene_caption(" ".join(sequence))
        assert (parsed.words, parsed.unknown) == (60, 0)
        assert all(len(set(mention.claims)) == len(mention.claims) for mention in parsed.mentions)


def test_a_phrase_has_one_kind_of_meaning() -> None:
    lexicon = _build_lexicon()
    for noun in (noun for nouns in w.NOUNS.values() for noun in nouns):
        for text in (noun.singular, noun.plural):
            assert lexicon[tuple(text.split())].kind == "noun"
    assert all(lexicon[tuple(verb.split())].kind == "verb" for verbs in w.VERBS.values() for verb in verbs)
    assert all(lexicon[tuple(text.split())].kind == "relation" for text, name, _ in w.RELATIONS if name)


# ---- comparison with the annotators' claims ---------------------------------------------------------------------


def convert_claims(
    claims: tuple[SceneClaim, ...],
) -> tuple[list[set[tuple[str, str]]], list[tuple[str, int, int]], dict[str, set[str]]]:
    """Return an annotator's claims as claims of each noun in order, relations, and claims about the scene."""
    nouns: dict[int, set[tuple[str, str]]] = {}
    for claim in claims:
        # the parser makes no claims about ground, water or air
        if claim.thing >= 0 and claim.kind not in ("relation", "place"):
            nouns.setdefault(claim.thing, set()).add((claim.kind, claim.value))
    order = list(nouns)
    relations = [(c.value, order.index(c.thing), order.index(c.other)) for c in claims if c.kind == "relation"]
    scene: dict[str, set[str]] = {"setting": set(), "scenery": set(), "weather": set()}
    for claim in claims:
        if claim.thing < 0:
            scene["weather" if claim.kind == "light" else claim.kind].add(claim.value)
    if scene["scenery"]:  # the words for a landmark imply a setting, but do not claim it
        scene["setting"] = set()
    return list(nouns.values()), relations, scene


def convert_parsed_claim(claim: ParsedClaim) -> tuple[str, str]:
    """Return the kind and the value of a parsed claim as an annotator states them."""
    values = sorted(claim.values)
    if claim.kind == "category" and len(values) > 1:
        kinds = {CATEGORIES[category].kind for category in values}
        return "kind", "person" if "person" in kinds else kinds.pop()
    if claim.kind == "count" and len(values) > 1:
        return "at_least", values[0]
    return "pose" if claim.kind == "action" else claim.kind, "|".join(values)


def test_captions_of_annotators_are_parsed_exactly() -> None:
    ambiguous = 0
    for i in range(400):
        for caption in describe_scene(sample_scene(3, i), 3, i):
            parsed = parse_scene_caption(caption.raw)
            nouns, relations, scene = convert_claims(caption.claims)
            mentions = [set(map(convert_parsed_claim, mention.claims)) for mention in parsed.mentions]
            assert mentions == nouns, caption.raw
            assert list(parsed.relations) == relations, caption.raw
            for kind in ("scenery", "weather"):
                assert {v for claim in parsed.scene if claim.kind == kind for v in claim.values} == scene[kind], (
                    caption.raw
                )
            settings = [claim.values for claim in parsed.scene if claim.kind == "setting"]
            assert len(settings) == len(scene["setting"]), caption.raw
            assert all(scene["setting"] <= values for values in settings), caption.raw
            ambiguous += any(len(values) > 1 for values in settings)
            assert (parsed.loose, parsed.unknown) == ((), 0), caption.raw
    assert 0 < ambiguous < 400
