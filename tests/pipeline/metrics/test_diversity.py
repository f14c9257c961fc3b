import pytest
import torch

from pipeline.errors import UserError
from pipeline.metrics.diversity import diversity, repeats


def test_figures_by_hand():
    captions = ["a red dog", "a red dog", "a dog dog", ""]
    tokens = torch.tensor([[1, 2, 3, 0], [1, 2, 3, 0], [1, 3, 3, 3], [0, 0, 0, 0]])
    expected = {
        "words_per_caption": 9 / 4,
        "distinct_captions": 3 / 4,
        "words_used": 3,
        "Div-1": 3 / 9,
        "Div-2": 4 / 9,  # a red, red dog, a dog, dog dog; none from one caption into the next
        "repetition": 1 / 4,
        "unfinished": 1 / 4,
    }
    assert diversity(captions, tokens) == expected
    assert diversity(captions, tokens.tolist()) == expected


def test_captions_without_words_have_no_diversity():
    figures = diversity(["", ""], [[0], [0]])
    assert (figures["Div-1"], figures["Div-2"], figures["words_per_caption"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a man in a hat on a hill", False),
        ("a group of people in front of a bunch of a", False),  # "of a" twice: function words
        ("a dog and a dog", True),
        ("the the dog", True),
        ("dog dog dog", True),
        ("red dog blue dog red cat", False),
        ("dog", False),
        ("", False),
    ],
)
def test_repetition(caption, expected):
    assert repeats(caption.split()) is expected


def test_mistakes_are_one_line():
    with pytest.raises(UserError, match="2 captions as text and 1 as ids"):
        diversity(["a", "b"], [[1, 0]])
    with pytest.raises(UserError, match="0 captions"):
        diversity([], [])
