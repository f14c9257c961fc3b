import math
import random
from collections import Counter

import pytest
import torch

from pipeline.errors import UserError
from pipeline.metrics.diversity import (
    compute_self_bleu,
    has_repetition,
    measure_caption_diversity,
    measure_set_diversity,
)


def test_statistics_equal_values_computed_by_hand():
    captions = ["a red dog", "a red dog", "a dog dog", ""]
    tokens = torch.tensor([[1, 2, 3, 0], [1, 2, 3, 0], [1, 3, 3, 3], [0, 0, 0, 0]])
    expected = {
        "words_per_caption": 9 / 4,
        "distinct_captions": 3 / 4,
        "words_used": 3,
        "Div-1": 3 / 9,
        "Div-2": 4 / 9,  # a red, red dog, a dog, dog dog; none across two captions
        "repetition": 1 / 4,
        "unfinished": 1 / 4,
        "unknown": 2 / 4,
    }
    assert measure_caption_diversity(captions, tokens, unk=2) == expected
    assert measure_caption_diversity(captions, tokens.tolist(), unk=2) == expected
    assert measure_caption_diversity(captions, tokens)["unknown"] == 0


def test_captions_without_words_have_no_diversity():
    figures = measure_caption_diversity(["", ""], [[0], [0]])
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
def test_repeated_words_and_bigrams_are_detected(caption, expected):
    assert has_repetition(caption.split()) is expected


def test_invalid_inputs_are_reported():
    with pytest.raises(UserError, match="2 captions as text and 1 as ids"):
        measure_caption_diversity(["a", "b"], [[1, 0]])
    with pytest.raises(UserError, match="0 captions"):
        measure_caption_diversity([], [])


def test_diversity_of_sets_equals_values_computed_by_hand():
    # image 1: 9 words, of which 5 are distinct; distinct bigrams: a dog, dog runs, a cat, cat sits
    # image 2: three equal captions
    sets = [["a dog runs", "a dog runs", "a cat sits"], ["a b c d e"] * 3]
    figures = measure_set_diversity(sets)
    assert figures["Div-1"] == pytest.approx((5 / 9 + 5 / 15) / 2)
    assert figures["Div-2"] == pytest.approx((4 / 9 + 4 / 15) / 2)
    # k = 1 and 2: all words (3 + 5), bigrams (2 + 4), trigrams (1 + 3) and 4-grams (0 + 2) match: BLEU-4 is 1
    # k = 3: "a" of image 1 and all of image 2: 6/8, 4/6, 3/4, 2/2 (image 1 has no n-gram of four words)
    third = (6 / 8 * 4 / 6 * 3 / 4 * 2 / 2) ** (1 / 4)
    assert figures["mBLEU-4 corpus"] == pytest.approx((1 + 1 + third) / 3, abs=1e-6)
    # Per caption: no caption of image 1 has four words, and pycocoevalcap takes 1e-15 / 1e-9 for the 4-grams.
    # For k = 1 and 2, 3 words, 2 bigrams and 1 trigram match; for k = 3, only the word "a" matches.
    # BLEU-4 is 1 for image 2.
    none = 1e-15 / 1e-9
    alike = none ** (1 / 4)
    other = (1 / 3 * 1e-15 / 2 * 1e-15 * none) ** (1 / 4)
    assert figures["mBLEU-4 per caption"] == pytest.approx((alike + 1 + alike + 1 + other + 1) / 6, abs=1e-6)


def test_sets_without_common_n_grams_or_without_words_have_an_mbleu_of_0():
    disjoint = measure_set_diversity([["a b c d e", "f g h i j"]])
    assert disjoint["Div-1"] == 1
    assert max(disjoint["mBLEU-4 corpus"], disjoint["mBLEU-4 per caption"]) < 1e-6
    nothing = pytest.approx(0, abs=1e-4)
    assert measure_set_diversity([["", ""]]) == {
        "Div-1": 0, "Div-2": 0, "mBLEU-4 corpus": nothing, "mBLEU-4 per caption": nothing
    }  # fmt: skip


def count_bleu_matches(caption: list[str], others: list[list[str]]) -> tuple[list[int], int, int]:
    """Return matches and n-grams of orders 1 to 4, the caption's length, and the closest length of another caption."""
    counts = []
    for n in range(1, 5):
        captions = Counter(tuple(caption[i : i + n]) for i in range(len(caption) - n + 1))
        known = [Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for text in others]
        counts += [sum(min(count, max(each[g] for each in known)) for g, count in captions.items()), captions.total()]
    closest = min((abs(len(text) - len(caption)), len(text)) for text in others)[1]
    return counts, len(caption), closest


def compute_bleu(counts: list[int], length: int, closest: int) -> float:
    """Return BLEU-4 with pycocoevalcap's smoothing."""
    score = 1.0
    for matched, total in zip(counts[::2], counts[1::2], strict=True):
        score *= ((matched + 1e-15) / (total + 1e-9)) ** (1 / 4)
    ratio = (length + 1e-15) / (closest + 1e-9)
    return score * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)


def test_the_two_mbleus_are_of_the_corpus_and_of_each_caption():
    draw = random.Random(3)
    sets = [[" ".join(draw.choices("abcde", k=draw.randint(2, 9))) for _ in range(5)] for _ in range(30)]
    corpus, per_caption = [], []
    for k in range(5):
        found = [
            count_bleu_matches(captions[k].split(), [text.split() for j, text in enumerate(captions) if j != k])
            for captions in sets
        ]
        per_caption += [compute_bleu(*one) for one in found]
        sums = [sum(column) for column in zip(*(counts for counts, _, _ in found), strict=True)]
        corpus.append(compute_bleu(sums, sum(one[1] for one in found), sum(one[2] for one in found)))
    figures = measure_set_diversity(sets)
    assert figures["mBLEU-4 corpus"] == pytest.approx(sum(corpus) / 5, rel=1e-9)
    assert figures["mBLEU-4 per caption"] == pytest.approx(sum(per_caption) / 150, rel=1e-9)
    assert figures["mBLEU-4 corpus"] > 2 * figures["mBLEU-4 per caption"]


@pytest.mark.parametrize("sets", [[], [["a"]], [["a", "b"], ["a"]]])
def test_sets_that_cannot_be_compared_are_reported(sets):
    with pytest.raises(UserError, match="the same number of captions, two or more"):
        measure_set_diversity(sets)


def _compute_plain_self_bleu(captions: list[str]) -> float:
    """Return self-BLEU: the mean BLEU of each caption against all others."""
    total = 0.0
    for position, caption in enumerate(captions):
        words, others = caption.split(), [text.split() for n, text in enumerate(captions) if n != position]
        score = 1.0
        for n in range(1, 6):
            counts = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
            known = [Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for text in others]
            matched = sum(min(count, max(each[ngram] for each in known)) for ngram, count in counts.items())
            if n == 1 and not matched:
                score = 0.0
            score *= ((matched or 0.1) / max(1, counts.total())) ** 0.2
        closest = min((abs(len(text) - len(words)), len(text)) for text in others)[1]
        total += score * (math.exp(min(0.0, 1 - closest / len(words))) if words else 0.0)
    return total / len(captions)


@pytest.mark.parametrize(
    ("letters", "count", "nltk"),
    [(3, 40, 0.45788299751819067), (8, 60, 0.18539940557571186), (20, 100, 0.14133614311958825)],
)
def test_self_bleu_equals_nltks(letters, count, nltk):
    """The numbers are those of NLTK 3.10: sentence_bleu, weights of 1/5, smoothing method1."""
    draw = random.Random(letters)
    captions = [
        " ".join(draw.choice("abcdefghijklmnopqrstuvwxyz"[:letters]) for _ in range(draw.randint(0, 9)))
        for _ in range(count)
    ]
    assert compute_self_bleu(captions) == pytest.approx(nltk, rel=1e-12)
    assert compute_self_bleu(captions) == pytest.approx(_compute_plain_self_bleu(captions))


def test_self_bleu_takes_the_first_captions_and_needs_two():
    assert compute_self_bleu(["a b c d e"] * 2) == pytest.approx(1)
    assert compute_self_bleu(["a b c d e", "f g h i j", "a b c d e"], max_captions=2) == 0
    with pytest.raises(UserError, match="Self-BLEU: 1 captions"):
        compute_self_bleu(["a"])
