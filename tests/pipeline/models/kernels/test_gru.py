import torch

from pipeline.models.kernels.gru import compute_last_gru_states


def test_states_and_gradients_equal_torchs_gru():
    torch.manual_seed(0)
    gru = torch.nn.GRU(5, 7, batch_first=True).double()
    words = torch.randn(6, 9, 5, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 9, 1, 9, 4, 2])
    expected = gru(words)[0][torch.arange(6), lengths - 1]
    found = compute_last_gru_states(gru, words, lengths)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(expected)
    variables = [words, *gru.parameters()]
    gradients, expected_gradients = (
        torch.autograd.grad((each * weight).sum(), variables) for each in (found, expected)
    )
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient)


def test_one_caption_of_one_word():
    gru = torch.nn.GRU(2, 3, batch_first=True)
    words = torch.randn(1, 4, 2)
    torch.testing.assert_close(compute_last_gru_states(gru, words, torch.tensor([1])), gru(words)[0][:, 0])
