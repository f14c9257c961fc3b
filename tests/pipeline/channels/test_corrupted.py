"""Every corruption of a human caption, computed by hand, and the random draws of each caption."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipeline.channels.corrupted import KINDS, MAX_SPAN, CorruptedCaptions, _corrupt
from pipeline.estimators.rollouts import StepRollouts

WORDS, OTHER = [1, 2, 3, 4], [7, 8]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0.1, 0.3, 0.0), [1, 2, 2, 3, 4]),  # the second word repeated
        ((0.1, 0.3, 0.9), [1, 2, 3, 4, 2, 3, 4]),  # three words repeated
        ((0.1, 0.9, 0.9), [1, 2, 3, 4, 4]),  # a span ends at the caption's end
        ((0.3, 0.3, 0.0), [1, 3, 4]),  # the second word removed
        ((0.3, 0.3, 0.5), [1, 4]),
        ((0.3, 0.0, 0.9), [4]),
        ((0.5, 0.3, 0.0), [1, 7, 2, 3, 4]),  # another caption's word inserted
        ((0.5, 0.9, 0.6), [1, 2, 3, 8, 4]),
        ((0.7, 0.3, 0.9), [1, 4, 3, 2]),  # two words swapped
        ((0.7, 0.0, 0.6), [3, 2, 1, 4]),
        ((0.9, 0.0, 0.0, 0.4, 0.1, 0.3, 0.2), [2, 4, 3, 1]),  # shuffled: sorted by the remaining numbers
    ],
)
def test_each_corruption_by_hand(numbers, expected):
    assert (KINDS, MAX_SPAN) == (5, 3)
    assert _corrupt(WORDS, OTHER, numbers) == expected
    assert WORDS == [1, 2, 3, 4]


def test_an_empty_other_caption_inserts_no_word():
    assert _corrupt(WORDS, [], (0.5, 0.3, 0.9)) == WORDS


def test_an_unchanged_caption_repeats_its_first_word_and_keeps_the_width(toy):
    batch = toy.batch()
    captions = torch.full((8, 4), 5)  # swaps and shuffles change no caption of equal words
    captions[0, 1:] = 0
    batch = replace(batch, captions=captions)
    for seed in range(6):
        found = CorruptedCaptions().captions(batch, torch.Generator().manual_seed(seed))
        assert found.shape == captions.shape
        assert set(found.flatten().tolist()) <= {0, 5}
        assert found[0].tolist() in ([5, 5, 0, 0], [0, 0, 0, 0])


def test_an_inserted_word_is_from_the_previous_caption(toy):
    batch = replace(toy.batch(), captions=torch.arange(1, 9).unsqueeze(1).repeat(1, 2))
    wide = replace(batch, captions=torch.cat([batch.captions, torch.zeros(8, 1, dtype=torch.int64)], 1))
    inserted = set()
    for seed in range(40):
        for row, caption in enumerate(
            CorruptedCaptions().captions(wide, torch.Generator().manual_seed(seed)).tolist(), start=1
        ):
            inserted |= {(row, word) for word in caption if word not in (0, row)}
    assert inserted == {(row, row - 1 if row > 1 else 8) for row in range(1, 9)}


def test_a_corruption_depends_on_the_captions_position_in_the_whole_batch_and_the_seed(toy):
    batch = toy.batch()
    whole = CorruptedCaptions().captions(batch, torch.Generator().manual_seed(3))
    last = replace(batch, captions=batch.captions[4:], images=batch.images[4:], first=4, whole_size=8)
    part = CorruptedCaptions().captions(last, torch.Generator().manual_seed(3))
    assert torch.equal(part[1:], whole[5:])  # the first caption of the part has another previous caption
    seeds = [StepRollouts(None, batch, seed).get_message(CorruptedCaptions()).tokens for seed in (1, 1, 2)]
    assert torch.equal(seeds[0], seeds[1])
    assert not torch.equal(seeds[0], seeds[2])
    message = StepRollouts(None, batch, 1).get_message(CorruptedCaptions())
    assert (message.samples, message.images.tolist()) == (1, list(range(8)))
    step = CorruptedCaptions().open(batch, 12, torch.Generator().manual_seed(3))
    tokens = torch.stack([step(t, torch.zeros(8, 13), torch.arange(8)).index for t in range(6)], 1)
    assert torch.equal(tokens, whole)


def test_an_empty_caption_and_a_full_one_of_equal_words_may_stay_unchanged(toy):
    captions = torch.full((8, 4), 5)
    captions[::2] = 0
    batch, unchanged = replace(toy.batch(), captions=captions), torch.zeros(8, dtype=torch.bool)
    for seed in range(20):
        unchanged |= (CorruptedCaptions().captions(batch, torch.Generator().manual_seed(seed)) == captions).all(1)
    assert unchanged.all()
