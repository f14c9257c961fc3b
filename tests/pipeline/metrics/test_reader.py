import pytest

from pipeline.errors import UserError
from pipeline.metrics.reader import compute_reader_statistics, leave_one_out
from pipeline.metrics.word_lists import COLOURS, FUNCTION_WORDS


def split_words(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def test_statistics_equal_values_computed_by_hand():
    captions = split_words("a gray dog on the red sofa", "a man and a man with his hat", "the")
    references = [
        split_words("a grey dog", "the dog on a couch"),
        split_words("a man in a red hat"),
        split_words("a cat"),
    ]
    found = compute_reader_statistics(captions, references)
    # content words (* in no reference): gray* dog red* sofa*, and man man hat
    # "gray" and "grey" are two words and one colour; no reference of the first image has "red"
    assert found == {"repeated": 1 / 3, "content_words": 4 / 7, "colour_words": 1 / 2}


def test_a_share_of_nothing_is_left_out():
    assert compute_reader_statistics(split_words("the"), [split_words("a dog")]) == {"repeated": 0}


def test_leave_one_out_compares_a_caption_with_the_others_of_its_image():
    first, second, third, fourth = split_words("a b", "c", "d", "e")
    captions, references = leave_one_out([[first, second, third], [fourth], [second, first]])
    assert captions == [first, second, third, second, first]
    assert references == [[second, third], [first, third], [first, second], [first], [second]]


def test_invalid_inputs_are_reported():
    for captions, references in (([], []), (split_words("a"), [])):
        with pytest.raises(UserError, match=rf"reader: .* \(got {len(captions)} and 0\)"):
            compute_reader_statistics(captions, references)


def test_no_colour_is_a_function_word():
    assert not FUNCTION_WORDS & set(COLOURS)
    assert all(COLOURS[colour] == colour for colour in COLOURS.values())
