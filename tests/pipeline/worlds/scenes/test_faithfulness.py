"""The claims of captions are checked against the facts of their scenes."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.errors import UserError
from pipeline.readers import read_corpus
from pipeline.worlds.films.film_facts import read_films
from pipeline.worlds.scenes.faithfulness import KINDS, check_claims, check_words, judge_faithfulness, list_facts
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import describe_scene
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Box, Scene, Thing, read_facts
from pipeline.worlds.scenes.write_scenes import draw_scenes

LEFT, RIGHT = (0.05, 0.5, 0.30, 0.80), (0.35, 0.5, 0.65, 0.82)


def make_thing(category: str, colour: str, pose: str, box: Box, count: int = 1, **changes: str) -> Thing:
    facts = {"pattern": "plain", "size": "medium"} | changes
    return Thing(category, colour, facts["pattern"], facts["size"], count, pose, "ground", "left", (box,) * count, box)


SCENE = Scene(  # two spotted brown dogs to the left of a tall man in blue
    *("farm", "clear", "night", 0.45, 0.45, {"fence": 0.5}),
    (
        make_thing("dog", "brown", "running", LEFT, 2, pattern="spotted"),
        make_thing("man", "blue", "standing", RIGHT, size="large"),
    ),
)
COUPLE = Scene(
    *("beach", "sunny", "day", 0.45, 0.55, {}),
    (make_thing("man", "red", "standing", LEFT), make_thing("woman", "blue", "walking", RIGHT)),
)


def count_claims(caption: str, scene: Scene = SCENE) -> tuple[int, int, int]:
    """Return the numbers of claims, of true claims and of stated facts."""
    claims, facts = check_claims(caption, scene)
    return len(claims), sum(claims.values()), len(facts)


def test_the_facts_of_a_scene() -> None:
    expected = {(kind, i) for i in (0, 1) for kind in ("category", "count", "colour", "action")}
    expected |= {("pattern", 0), ("size", 1), ("relation", 0, 1)}
    expected |= {("setting", "farm"), ("scenery", "fence"), ("weather", "night")}
    assert set(list_facts(SCENE)) == expected
    assert len(list(list_facts(SCENE))) == len(expected) == 14


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("two dogs", (2, 2, 2)),
        ("two dogs two dogs", (2, 2, 2)),  # a repetition adds no claim
        ("a dog", (2, 1, 1)),
        ("three dogs", (2, 1, 1)),
        ("some dogs", (2, 2, 1)),  # the claim is true, but does not state the number
        ("a group of dogs", (2, 1, 1)),
        ("two brown spotted dogs", (4, 4, 4)),
        ("two red striped dogs", (4, 2, 2)),
        ("two puppies", (3, 2, 2)),
        ("two black cats are running", (4, 0, 0)),  # the scene has no cats, so no claim about them is true
        ("two animals", (2, 2, 1)),
        ("three animals", (2, 1, 0)),
        ("a vehicle", (2, 0, 0)),
        ("a tall person in a blue shirt", (4, 4, 3)),
        ("a kid", (2, 0, 0)),
        ("two dogs running at night", (4, 4, 4)),
        ("two dogs and a man are running", (6, 5, 5)),
        ("two dogs next to a man", (5, 5, 5)),
        ("two dogs to the right of a man", (5, 4, 4)),
        ("a man near a man", (3, 2, 2)),  # a thing is not near itself
        ("a farm on a cloudy day", (2, 1, 1)),
        ("near a fence", (1, 1, 1)),
        ("near a barn", (1, 0, 0)),
        ("on the grass", (1, 1, 0)),  # several settings have grass
        ("on the beach", (1, 0, 0)),
        ("a red barn", (1, 0, 0)),  # the colour of a barn is no fact
        ("blue", (1, 1, 0)),  # one of the things is blue
        ("green", (1, 0, 0)),
        ("two brown dogs on the brown", (3, 3, 3)),  # the claim about the dogs covers the second “brown”
        ("flying", (1, 0, 0)),
        ("wooden gizmos", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_claims_by_hand(caption: str, expected: tuple[int, int, int]) -> None:
    assert count_claims(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a person in a blue shirt is walking", (4, 4, 3)),  # the woman
        ("a person in a red shirt is walking", (4, 3, 2)),  # no person has both attributes
        ("two people", (2, 2, 0)),  # the claims are true of both things together, and state no fact of one thing
        ("three people", (2, 1, 0)),
        ("a person to the right of a person", (3, 3, 2)),  # the count of one thing, and the relation
        ("a person in a red shirt to the right of a person", (4, 3, 2)),
        ("a boy on the sand", (3, 1, 0)),
    ],
)
def test_a_noun_for_many_categories_refers_to_the_thing_that_fits_best(
    caption: str, expected: tuple[int, int, int]
) -> None:
    assert count_claims(caption, COUPLE) == expected


def test_a_repeated_claim_counts_once() -> None:
    caption = "two dogs and a cat in the park at night"
    assert count_claims(f"{caption} {caption} at night two dogs") == count_claims(caption)


def test_numbers_by_hand() -> None:
    counts = judge_faithfulness(["two red dogs at night", "a boy near zebras", ""], [SCENE, COUPLE, COUPLE])
    facts = len(list(list_facts(COUPLE)))
    assert facts == 11
    assert counts.columns() == {
        "claims": [4, 2, 0],
        "claims_true": [3, 0, 0],
        "facts": [14, facts, facts],
        "facts_told": [3, 0, 0],
    }
    assert counts.words.tolist() == [5, 4, 0]
    summary = counts.summary()
    by_kind = summary.pop("by_kind")
    assert summary == {
        "precision": 3 / 6,
        "told": 3 / 36,
        "claims_per_caption": 6 / 3,
        "unknown_words": 1 / 9,
    }
    assert list(by_kind) == list(KINDS)
    assert by_kind["category"] == {"precision": 1 / 2, "told": 1 / 6, "claims": 2 / 3}
    assert by_kind["colour"] == {"precision": 0.0, "told": 0.0, "claims": 1 / 3}
    assert by_kind["weather"] == {"precision": 1.0, "told": 1 / 3, "claims": 1 / 3}
    assert by_kind["pattern"] == {"told": 0.0, "claims": 0.0}  # without a claim there is no precision
    assert json.loads(json.dumps(counts.summary())) == counts.summary()


def test_annotators_claim_nothing_false_and_omit_facts() -> None:
    scenes = [sample_scene(2, i) for i in range(300)]
    captions = [(caption.raw, scene) for i, scene in enumerate(scenes) for caption in describe_scene(scene, 2, i)]
    counts = judge_faithfulness(*zip(*captions, strict=True))
    assert [captions[n] for n in np.flatnonzero((counts.claims != counts.true).any(1))] == []
    assert (counts.told <= counts.facts).all()
    assert (counts.claims.sum(1) > 0).all()
    summary = counts.summary()
    assert summary["precision"] == 1.0
    assert summary["unknown_words"] == 0.0
    assert all(kind["precision"] == 1.0 and 0.05 < kind["told"] < 0.75 for kind in summary["by_kind"].values())
    mismatched = judge_faithfulness(
        [caption for caption, _ in captions], [scene for _, scene in captions[400:] + captions[:400]]
    )
    assert mismatched.summary()["precision"] < 0.4


def test_facts_are_found_by_the_ids_of_the_prepared_data(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    draw_scenes(root, 24, 32, 8, 8, seed=5, workers=1)
    corpus = read_corpus("scenes", "karpathy", root, "dataset_scenes.json", root / "images")
    (tmp_path / "prepared").mkdir()
    write_prepared(corpus, tmp_path / "prepared", 0, 16)
    prepared = PreparedData.load(tmp_path / "prepared")
    facts = read_facts(root / SCENE_FACTS)
    assert facts == {str(i): sample_scene(5, i) for i in range(24)}
    for row in prepared.rows("test"):
        texts = prepared.texts(row)
        counts = judge_faithfulness(texts, [facts[prepared.ids[row].as_py()]] * len(texts))
        assert counts.summary()["precision"] == 1.0


def test_invalid_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"got 2 and 1\)"):
        judge_faithfulness(["a", "b"], [SCENE])
    with pytest.raises(UserError, match=r"got 0 and 0\)"):
        judge_faithfulness([], [])
    with pytest.raises(UserError, match="no such file"):
        read_facts(tmp_path / SCENE_FACTS)
    for bad in ("{", "[1]", '{"imgid": 1}'):
        (tmp_path / SCENE_FACTS).write_text(json.dumps({"imgid": 0, **SCENE.record()}) + "\n" + bad + "\n")
        with pytest.raises(UserError, match=r"facts\.jsonl: line 2 holds no scene"):
            read_facts(tmp_path / SCENE_FACTS)
    (tmp_path / SCENE_FACTS).write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"facts\.jsonl: cannot be read \('utf-8' codec"):
        read_facts(tmp_path / SCENE_FACTS)
    (tmp_path / SCENE_FACTS).write_text('{"imgid": 1, "objects": ["x"]}\n')
    with pytest.raises(UserError, match="line 1 holds no film"):
        read_films(tmp_path / SCENE_FACTS)


@pytest.mark.parametrize(
    ("caption", "true", "false"),
    [
        ("two brown dogs", "two brown dogs", ""),
        ("two red dogs", "two dogs", "red"),
        ("a dog", "dog", "a"),  # the scene has two dogs
        ("a brown dog", "brown dog", "a"),
        ("dogs", "dogs", ""),
        ("a farm with a tall man", "farm a tall man", ""),  # the first article belongs to no thing
        ("two dogs are lying down near a man", "two dogs near a man", "lying down"),
        ("two cats are running", "", "two cats running"),
        ("a man to the right of two dogs", "a man to the right of two dogs", ""),
        ("a man to the left of two dogs", "a man two dogs", "to the left of"),
        ("a red man and two red dogs", "a man two dogs", "red red"),
        ("a brown man and two brown dogs", "a man two brown dogs", "brown"),
        ("a man is blue", "a man blue", ""),
        ("a man in a red shirt", "a man", "red"),
        ("under a cloudy sky", "", "cloudy sky"),
        ("Two brown-spotted DOGS, unicorn", "Two brown-spotted DOGS,", ""),
        ("two red-spotted dogs", "two dogs", "red-spotted"),  # a word is true if all its claims are true
        ("", "", ""),
    ],
)
def test_words_are_true_if_all_their_claims_are_true(caption: str, true: str, false: str) -> None:
    found = check_words(caption, SCENE)
    assert [word for word, _ in found] == caption.split()
    assert " ".join(word for word, truth in found if truth) == true
    assert " ".join(word for word, truth in found if truth is False) == false
