"""CIDEr-D on ids against pycocoevalcap's on the same tokens, and against numbers computed by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.cider.cider_scorer import CiderScorer

from pipeline.errors import UserError
from pipeline.metrics import cider
from pipeline.metrics.cider import CiderD, compute_document_frequencies


def join_ids(caption, max_words, eos):
    """Return a caption as pycocoevalcap expects it: ids as words, and EOS as the word 0."""
    clipped = list(caption)[:max_words]
    return " ".join(map(str, [*clipped, 0] if eos and len(clipped) < max_words else clipped))


def score_with_pycocoevalcap(captions, images, references, documents, max_words, eos):
    """Return pycocoevalcap's scores of `captions`, with document frequencies over `documents`."""
    scorer, counter = CiderScorer(), CiderScorer()
    for caption, image in zip(captions, images, strict=True):
        human = [join_ids(text, max_words, eos) for text in references[image]]
        scorer += (join_ids(caption, max_words, eos), human)
    for texts in documents:
        counter += ("", [join_ids(text, max_words, eos) for text in texts])
    counter.compute_doc_freq()
    scorer.document_frequency = counter.document_frequency
    assert len(documents) >= len(captions)
    # the scorer takes the number of documents from `crefs`, and scores only the captions
    scorer.crefs += [[]] * (len(documents) - len(captions))
    return np.array(scorer.compute_cider())


def pad_captions(captions, width):
    tokens = torch.zeros(len(captions), width, dtype=torch.long)
    for row, caption in zip(tokens, captions, strict=True):
        row[: len(caption)] = torch.tensor(caption, dtype=torch.long)
    return tokens


def check_scores(captions, images, references, train, max_words, eos, frequencies):
    keys, counts = compute_document_frequencies(train, max_words=max_words, eos=eos)
    documents = train if frequencies == "train" else [references[image] for image in images]
    expected = score_with_pycocoevalcap(captions, images, references, documents, max_words, eos)
    # pycocoevalcap's idf of a batch, log N − log df, loses digits where df is nearly N; CiderD's does not
    exact = 0 if frequencies == "train" else 1e-10
    for dtype, tolerance in ((torch.float64, exact), (torch.float32, 1e-5)):
        scorer = CiderD.build(
            references, keys, counts, len(train), max_words=max_words, eos=eos, frequencies=frequencies, dtype=dtype
        )
        found = scorer(pad_captions(captions, max_words), torch.tensor(images))
        assert found.dtype == dtype
        np.testing.assert_allclose(found.double().numpy(), expected, rtol=tolerance, atol=1e-12)
    return expected


def has_words(references):
    return any(caption for captions in references for caption in captions)


@st.composite
def draw_world(draw):
    """Draw captions of a small vocabulary, some equal to a reference, and references that may exceed the limit."""
    width, words = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    reference = st.lists(st.integers(1, words), max_size=width + 2)
    references = draw(st.lists(st.lists(reference, min_size=1, max_size=7), min_size=1, max_size=5).filter(has_words))
    train = draw(st.lists(st.lists(reference, min_size=1, max_size=3), min_size=6, max_size=9))
    images = draw(st.lists(st.integers(0, len(references) - 1), min_size=1, max_size=6))
    caption = st.lists(st.integers(1, words + 1), max_size=width)
    captions = [draw(st.one_of(caption, st.just(references[image][0][:width]))) for image in images]
    return captions, images, references, train, width


@settings(max_examples=80)
@given(draw_world(), st.sampled_from(["train", "batch"]))
def test_cider_equals_pycocoevalcaps_on_small_worlds(world, frequencies):
    captions, images, references, train, width = world
    check_scores(captions, images, references, train, width, True, frequencies)


@pytest.mark.parametrize("frequencies", ["train", "batch"])
@pytest.mark.parametrize("eos", [True, False])
def test_cider_equals_pycocoevalcaps_on_captions_like_human_ones(eos, frequencies):
    rng = np.random.default_rng(3)

    def draw_caption(longest):
        return np.minimum(rng.zipf(1.4, rng.integers(0, longest + 1)), 400).tolist()

    references = [[draw_caption(20) for _ in range(rng.integers(1, 8))] for _ in range(60)]
    references[0] = [[5, 6, 7]]
    images = [0, 0, 0, *rng.integers(0, 60, 47).tolist()]
    captions = [draw_caption(16) for _ in images]
    captions[:3] = [], [5], [5] * 16
    for row in range(10, 30):
        captions[row] = references[images[row]][-1][:16]
    expected = check_scores(captions, images, references, references[:55], 16, eos, frequencies)
    assert expected.max() > 2
    assert (expected[0] == 0) != eos  # an empty caption shares EOS with the references


def test_cider_equals_values_computed_by_hand():
    references = [[[1, 2]], [[3, 4]]]
    keys, counts = compute_document_frequencies(references, max_words=2, eos=False)
    scorer = CiderD.build(references, keys, counts, 2, max_words=2, eos=False, dtype=torch.float64)
    found = scorer(pad_captions([[1, 2], [1, 3], [1], []], 2), torch.tensor([0, 0, 0, 0]))
    # every idf is log 2 and cancels; two of four orders exist; the caption [1] has one bigram fewer than the reference
    expected = [10 * (1 + 1) / 4, 10 * (1 / 2) / 4, 10 * math.sqrt(1 / 2) / 4 * math.exp(-1 / 72), 0]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_document_frequencies_count_images():
    keys, counts = compute_document_frequencies([[[1, 2], [1, 2]], [[2]], [[2, 1, 3, 3]]], max_words=3)
    counted = {}
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        order = (key >> 61) + 1
        counted[tuple(key >> 15 * position & 32767 for position in reversed(range(order)))] = count
    assert counted == {
        (0,): 2,
        (1,): 2,
        (2,): 3,
        (3,): 1,  # the fourth word is clipped, and a clipped caption has no EOS
        (1, 2): 1,
        (1, 3): 1,
        (2, 0): 2,
        (2, 1): 1,
        (1, 2, 0): 1,
        (2, 1, 3): 1,
    }
    assert np.all(np.diff(keys) > 0)
    assert (keys.dtype, counts.dtype) == (np.int64, np.int32)


def test_the_largest_id_differs_from_padding():
    big = cider.MAX_ID
    references = [[[big] * 4], [[1]]]
    check_scores([[big] * 4, [big] * 3], [0, 0], references, references, 5, True, "train")


def test_length_is_the_number_of_bigrams():
    # as in pycocoevalcap, a caption of one word is as long as an empty caption
    references = [[[1]], [[2]], [[1, 3]]]
    scorer = CiderD.build(
        references, *compute_document_frequencies(references, eos=False), 3, max_words=4, eos=False, dtype=torch.float64
    )
    assert scorer.bigrams.flatten().tolist() == [0, 0, 1]
    short, long = scorer(pad_captions([[1], [1, 1, 1]], 4), torch.tensor([0, 0])).tolist()
    # "1" counts once of three times; the lengths differ by two bigrams
    assert long == pytest.approx(short / 3 * math.exp(-4 / 72), rel=1e-12)
    check_scores([[1], [1, 1, 1], []], [0, 0, 2], references, references, 4, False, "train")


@pytest.mark.parametrize("amount", [0, 1, 2, 3, 30, 5000])
def test_every_key_is_in_one_of_its_two_slots_and_other_keys_are_absent(amount):
    rng = np.random.default_rng(amount)
    ngrams = np.unique(rng.integers(0, 40, (2 * amount, 4)), axis=0)
    keys = rng.permutation(cider.pack_ngrams(ngrams))
    stored, absent = keys[:amount], keys[amount:]
    slots, values = cider._build_hash_table(stored, np.arange(amount) + 1.0)
    assert np.array_equal(np.sort(slots[slots >= 0]), np.sort(stored))
    assert cider._look_up(torch.from_numpy(stored), slots, values, -1.0).tolist() == [n + 1 for n in range(amount)]
    assert set(cider._look_up(torch.from_numpy(absent), slots, values, -1.0).tolist()) <= {-1.0}


def test_a_hash_table_grows_where_keys_do_not_fit(monkeypatch):
    monkeypatch.setattr(cider, "_hash_slots", lambda keys, slots: (keys & (slots - 1), (keys >> 1) & (slots - 1)))
    keys = np.array([1, 33, 65])  # 16 slots: all fit only slots 0 and 1; 32 slots: one also fits 16
    slots, values = cider._build_hash_table(keys, np.array([1.0, 2.0, 3.0]))
    assert len(slots) == 32
    assert cider._look_up(torch.from_numpy(keys), slots, values, 0.0).tolist() == [1, 2, 3]


def test_scores_do_not_depend_on_the_number_of_images_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    references = [[rng.integers(1, 9, rng.integers(1, 9)).tolist() for _ in range(3)] for _ in range(10)]
    tokens, images = torch.from_numpy(rng.integers(0, 9, (20, 8))), torch.from_numpy(rng.integers(0, 10, 20))
    whole = CiderD.build(references, *compute_document_frequencies(references), 10)(tokens, images)
    monkeypatch.setattr(cider, "_IMAGES_AT_ONCE", 3)
    assert torch.equal(CiderD.build(references, *compute_document_frequencies(references), 10)(tokens, images), whole)


def test_masking_after_the_end_leaves_its_input_unchanged():
    tokens = torch.tensor([[3, 0, 0]], dtype=torch.int16)
    assert cider.mask_after_end(tokens, eos=True).tolist() == [[3], [0], [-1]]
    assert cider.mask_after_end(tokens, eos=False).tolist() == [[3], [-1], [-1]]
    assert tokens.tolist() == [[3, 0, 0]]


def test_tokens_after_eos_are_ignored():
    references = [[[1, 2, 3]], [[4]]]
    scorer = CiderD.build(references, *compute_document_frequencies(references, max_words=6), 2, max_words=6)
    clean, dirty = torch.tensor([[1, 2, 0, 0, 0, 0]]), torch.tensor([[1, 2, 0, 3, 1, 2]])
    assert torch.equal(scorer(clean, torch.tensor([0])), scorer(dirty, torch.tensor([0])))


@pytest.mark.parametrize("frequencies", ["train", "batch"])
def test_nothing_is_copied_from_the_device(frequencies):
    references = [[[1, 2, 3], [2]], [[4]]]
    keys, counts = compute_document_frequencies(references)
    scorer = CiderD.build(references, keys, counts, 2, frequencies=frequencies).to("meta")
    # meta tensors have no data: code that needs their values on the host raises an error
    score = scorer(torch.zeros(5, 16, dtype=torch.long, device="meta"), torch.zeros(5, dtype=torch.long, device="meta"))
    assert score.shape == (5,)


def test_no_captions_give_no_scores():
    references = [[[1]]]
    scorer = CiderD.build(references, *compute_document_frequencies(references), 1)
    assert scorer(torch.zeros(0, 16, dtype=torch.long), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_invalid_inputs_are_reported_in_one_line():
    keys, counts = compute_document_frequencies([[[1]], [[1]]])
    for references, images, message in (
        ([[[1]], []], 2, "row 1 has no reference"),
        ([[[1]], [[3, 0]]], 2, "id 0 in caption 0 of image row 1"),
        ([[[1], [2, 32768]]], 2, "id 32768 in caption 1 of image row 0"),
        ([[[1]]], 1, "expected sorted n-grams, and for each a count of at most 1 images"),
        ([[[]]], 2, "expected words in at least one"),
        ([], 2, "expected words in at least one"),
    ):
        with pytest.raises(UserError, match=message) as raised:
            CiderD.build(references, keys, counts, images)
        assert "\n" not in raised.value.args[0]
    with pytest.raises(UserError, match="at most 2 images, found 3 n-grams with 3 counts of at most 1, or another"):
        CiderD.build([[[1]]], np.array([1, 1, 1]), np.array([1, 1, 1]), 2)
    scorer = CiderD.build([[[1]]], keys, counts, 2)
    with pytest.raises(UserError, match="32767"):
        scorer(torch.tensor([[32768, 0]]), torch.tensor([0]))
