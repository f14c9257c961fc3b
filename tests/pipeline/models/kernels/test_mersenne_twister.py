import pytest
import torch

from pipeline.models.kernels.mersenne_twister import MersenneTwister


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, 2**40 + 17, 2**63 - 1])
def test_numbers_are_torchs_to_the_bit(seed):
    torch_generator, generator = torch.Generator().manual_seed(seed), MersenneTwister(seed)
    for size in [(1,), (3, 5), (64, 36), (0,), (623,), (700,), (624,)]:
        assert torch.equal(generator.rand(*size), torch.rand(*size, generator=torch_generator))
