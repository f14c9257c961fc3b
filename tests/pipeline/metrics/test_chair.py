import pytest

from pipeline.errors import UserError
from pipeline.metrics.chair import MAX_PHRASE, compute_chair, find_mentioned_objects
from pipeline.metrics.object_words import OBJECTS, SYNONYMS


def split_captions(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("two puppies and a dog", ["dog", "dog"]),
        ("a hot dog on a bus", ["hot dog", "bus"]),  # the longest phrase; "bus" is not the plural of "bu"
        ("wolves knives buses dresses ladies glasses", ["knife", "bus", "dress", "person", "glasses"]),
        ("a baby elephant under a hot air balloon", ["elephant", "balloon"]),  # not a baby
        ("people with wine glasses and teddy bears", ["person", "wine glass", "teddy bear"]),
        ("standing on the street", []),
        ("capes panes cubes vanes tubes suites mates rates manes", []),  # no caps, pans, cubs, vans, tubs or suits
        ("", []),
    ],
)
def test_mentioned_objects_are_listed_by_name(caption, expected):
    assert find_mentioned_objects(tuple(caption.split())) == tuple(expected)


def test_chair_equals_values_computed_by_hand():
    captions = split_captions("a man on a sofa", "a cat and a dog and a cat", "a field", "a dog")
    references = [
        split_captions("a woman sits", "a couch"),
        split_captions("two puppies"),
        split_captions("a horse"),
        split_captions("a dog", "a cat"),
    ]
    # the references have synonyms of man and sofa, and the dogs, but not the cats; a field is no object
    assert compute_chair(captions, references) == {"CHAIR_i": 2 / 6, "CHAIR_s": 1 / 4, "objects": 6 / 4}


def test_annotated_objects_are_in_the_image_too():
    captions = split_captions("a man at a table", "a cat")
    references = [split_captions("a room"), split_captions("a field")]
    for names in (["person", "dining table"], ["Person", "Dining Table"]):  # some data sets capitalise
        found = compute_chair(captions, references, [names, []])
        assert found == {"CHAIR_i": 1 / 3, "CHAIR_s": 1 / 2, "objects": 3 / 2}
    assert compute_chair(captions, references)["CHAIR_i"] == 1


def test_captions_without_objects_have_no_chair_i():
    assert compute_chair(split_captions("a field"), [split_captions("a dog")]) == {"CHAIR_s": 0, "objects": 0}
    with pytest.raises(UserError, match=r"CHAIR: need as many captions as references, one or more \(got 1 and 0\)"):
        compute_chair(split_captions("a"), [])


def test_every_listed_word_has_its_object():
    for phrase, name in OBJECTS.items():
        assert len(phrase.split()) <= MAX_PHRASE
        assert find_mentioned_objects(tuple(phrase.split())) == (name,)
    assert sum(map(len, SYNONYMS)) == len(OBJECTS), "expected each word once"
    assert len(SYNONYMS) > 200


@pytest.mark.parametrize("plural", ["babies", "calves", "knives", "boxes", "french fries", "tomatoes", "frisbees"])
def test_plurals_with_a_common_ending_need_no_entry(plural):
    assert plural not in OBJECTS
    assert len(find_mentioned_objects(tuple(plural.split()))) == 1
