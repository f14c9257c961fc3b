"""Inverse-CDF sampling: the distribution of tokens, and the random numbers of each photo."""

import torch

from saywhich.pretrained.inverse_cdf_sampling import InverseCdfSampling, draw_photo_uniforms


def test_tokens_have_the_shares_of_their_probabilities():
    probabilities = torch.tensor([0.0, 0.5, 0.2, 0.0, 0.3, 0.0])
    uniforms = (torch.arange(1000, dtype=torch.float64) / 1000).unsqueeze(1)
    scores = InverseCdfSampling(uniforms)(torch.zeros(1000, 1), probabilities.log().expand(1000, -1))
    assert torch.equal(scores.isfinite().sum(1), torch.ones(1000, dtype=torch.int64))
    shares = scores.argmax(1).bincount(minlength=6) / 1000
    torch.testing.assert_close(shares, probabilities, atol=0.0011, rtol=0)
    assert shares[probabilities == 0].sum() == 0


def test_a_uniform_number_rounded_to_1_selects_a_possible_token():
    scores = InverseCdfSampling(torch.ones(1, 1, dtype=torch.float64))(
        torch.zeros(1, 1), torch.tensor([[0.1, 0.7, -torch.inf]])
    )
    assert int(scores.argmax()) == 1


def test_numbers_depend_on_the_photo_and_the_seed_alone():
    both, other = draw_photo_uniforms(0, ["a", "b"], 3, 5), draw_photo_uniforms(0, ["b"], 3, 5)
    assert torch.equal(both[3:], other)
    assert torch.equal(draw_photo_uniforms(0, ["b"], 2, 5), other[:2])
    assert not torch.equal(draw_photo_uniforms(1, ["b"], 3, 5), other)
    assert both.unique().numel() == both.numel()
