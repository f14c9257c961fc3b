from dataclasses import replace

import pytest
import torch

from pipeline.models.kernels.mersenne_twister import MersenneTwister, TwisterRandom
from pipeline.random import BatchRandom


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, 2**40 + 17, 2**63 - 1])
def test_numbers_are_torchs_to_the_bit(seed):
    torch_generator, generator = torch.Generator().manual_seed(seed), MersenneTwister(seed)
    for size in [(1,), (3, 5), (64, 36), (0,), (623,), (700,), (624,)]:
        assert torch.equal(generator.rand(*size), torch.rand(*size, generator=torch_generator))


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("rows", [None, torch.tensor([4, 1, 0])])
def test_dropout_masks_are_those_of_torchs_numbers(toy, rows, first):
    batch, width = replace(toy.batch(), first=first, whole_size=11), 2
    x = torch.empty(len(batch) * width if rows is None else len(rows), 3, 5)
    expected, found = (
        kind(batch, torch.Generator().manual_seed(7)).keep_mask(x, 0.7, rows, width)
        for kind in (BatchRandom, TwisterRandom)
    )
    assert torch.equal(found, expected)
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.7])
