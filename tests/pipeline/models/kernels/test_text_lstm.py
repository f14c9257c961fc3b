"""States and gradients of the compiled LSTM equal those of torch."""

import pytest
import torch

from pipeline.models.kernels.text_lstm import text_lstm
from pipeline.models.recurrent import text_states
from pipeline.runtime import devices


@pytest.mark.parametrize("started", [False, True])
def test_states_cells_and_gradients_are_those_of_torchs_lstm(started):
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(5, 7, batch_first=True).double()
    words = torch.randn(6, 9, 5, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 9, 1, 9, 4, 2])
    h, c = (torch.randn(6, 7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    packed = torch.nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    theirs, (last, cells) = lstm(packed, (h.unsqueeze(0), c.unsqueeze(0)) if started else None)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs, batch_first=True)
    found = text_lstm(lstm, words, lengths, (h, c) if started else None)
    torch.testing.assert_close(found.states, padded.flatten(0, 1)[found.positions])
    torch.testing.assert_close(found.states[found.last], last[0])
    torch.testing.assert_close(found.cells, cells[0])
    assert len(found.positions) == lengths.sum() == len(set(found.positions.tolist()))
    by_place, by_cell = torch.randn_like(padded), torch.randn_like(found.cells)
    expectation = [words, *lstm.parameters(), *((h, c) if started else ())]
    loss = (padded * by_place).sum() + (cells[0] * by_cell).sum()
    own = (found.states * by_place.flatten(0, 1)[found.positions]).sum() + (found.cells * by_cell).sum()
    expected = torch.autograd.grad(loss, expectation)
    for left, right in zip(torch.autograd.grad(own, expectation), expected, strict=True):
        torch.testing.assert_close(left, right)


def test_one_text_of_one_word_in_single_precision():
    lstm = torch.nn.LSTM(2, 3, batch_first=True)
    words = torch.randn(1, 4, 2)
    found = text_lstm(lstm, words, torch.tensor([1]))
    torch.testing.assert_close(found.states, lstm(words)[0][:, 0])


def test_the_form_for_other_devices_has_the_same_states(monkeypatch):
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(5, 7, batch_first=True).double()
    words, lengths = torch.randn(6, 9, 5, dtype=torch.float64), torch.tensor([3, 9, 1, 9, 4, 2])
    here = text_states(lstm, words, lengths)
    monkeypatch.setattr(devices, "is_synchronous", lambda device: False)
    there = text_states(lstm, words, lengths)
    padded = [torch.zeros(54, 7).double().index_copy(0, found.positions, found.states) for found in (here, there)]
    torch.testing.assert_close(*padded)
    torch.testing.assert_close(here.cells, there.cells)
    torch.testing.assert_close(here.states[here.last], there.states[there.last])
