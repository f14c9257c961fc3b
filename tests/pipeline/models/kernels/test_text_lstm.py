"""States and gradients of the compiled LSTM equal those of torch's LSTM."""

import pytest
import torch

from pipeline.models.kernels.text_lstm import compute_text_lstm
from pipeline.models.recurrent import compute_text_states
from pipeline.runtime import devices


@pytest.mark.parametrize("with_state", [False, True])
def test_states_cells_and_gradients_equal_torchs_lstm(with_state):
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(5, 7, batch_first=True).double()
    words = torch.randn(6, 9, 5, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 9, 1, 9, 4, 2])
    h, c = (torch.randn(6, 7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    packed = torch.nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    outputs, (last, cells) = lstm(packed, (h.unsqueeze(0), c.unsqueeze(0)) if with_state else None)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    found = compute_text_lstm(lstm, words, lengths, (h, c) if with_state else None)
    torch.testing.assert_close(found.states, padded.flatten(0, 1)[found.positions])
    torch.testing.assert_close(found.states[found.last], last[0])
    torch.testing.assert_close(found.cells, cells[0])
    assert len(found.positions) == lengths.sum() == len(set(found.positions.tolist()))
    state_weights, cell_weights = torch.randn_like(padded), torch.randn_like(found.cells)
    variables = [words, *lstm.parameters(), *((h, c) if with_state else ())]
    loss = (padded * state_weights).sum() + (cells[0] * cell_weights).sum()
    found_loss = (found.states * state_weights.flatten(0, 1)[found.positions]).sum()
    found_loss = found_loss + (found.cells * cell_weights).sum()
    expected = torch.autograd.grad(loss, variables)
    for gradient, expected_gradient in zip(torch.autograd.grad(found_loss, variables), expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient)


def test_one_text_of_one_word_in_single_precision():
    lstm = torch.nn.LSTM(2, 3, batch_first=True)
    words = torch.randn(1, 4, 2)
    found = compute_text_lstm(lstm, words, torch.tensor([1]))
    torch.testing.assert_close(found.states, lstm(words)[0][:, 0])


def test_the_form_for_other_devices_has_the_same_states(monkeypatch):
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(5, 7, batch_first=True).double()
    words, lengths = torch.randn(6, 9, 5, dtype=torch.float64), torch.tensor([3, 9, 1, 9, 4, 2])
    expected = compute_text_states(lstm, words, lengths)
    monkeypatch.setattr(devices, "is_synchronous", lambda device: False)
    other = compute_text_states(lstm, words, lengths)
    padded = [torch.zeros(54, 7).double().index_copy(0, found.positions, found.states) for found in (expected, other)]
    torch.testing.assert_close(*padded)
    torch.testing.assert_close(expected.cells, other.cells)
    torch.testing.assert_close(expected.states[expected.last], other.states[other.last])
