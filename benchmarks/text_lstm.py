"""Time of an LSTM over texts of different lengths, forward and backward, compared with torch's packed LSTM.

    python benchmarks/text_lstm.py

The sizes come from the drawn dialogs (1,100 short answers, and 80 questions) and from the papers (512 captions). Both
LSTMs compute the gradients of weights and inputs, on one thread. The ratio compares medians of alternating runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from printing import begin_table
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from pipeline.models.kernels.text_lstm import compute_text_lstm
from pipeline.runtime.memory import keep_freed

SIZES = {  # texts, longest, mean length, input size, hidden size
    "1,100 answers of dialogs": (1100, 8, 2.5, 48, 64),
    "80 questions of dialogs": (80, 12, 6.0, 48, 64),
    "512 captions of the papers' size": (512, 16, 10.0, 512, 512),
}
RUNS = 15


def main() -> None:
    torch.set_num_threads(1)
    keep_freed()
    print_row = begin_table(
        "LSTM over texts, forward and backward", "texts", "here, ms", "torch, ms", "torch / here", first=34
    )
    for name, (texts, longest, mean, inputs, hidden) in SIZES.items():
        generator = torch.Generator().manual_seed(0)
        lengths = torch.poisson(torch.full((texts,), mean), generator=generator).long().clamp(1, longest)
        embeddings = torch.randn(texts, longest, inputs, generator=generator, requires_grad=True)
        lstm = nn.LSTM(inputs, hidden, batch_first=True)
        own_seconds, torch_seconds = _measure_medians(lstm, embeddings, lengths)
        print_row(
            name, f"{1000 * own_seconds:.1f}", f"{1000 * torch_seconds:.1f}", f"{torch_seconds / own_seconds:.1f}"
        )


def _measure_medians(lstm: nn.LSTM, embeddings: Tensor, lengths: Tensor) -> tuple[float, float]:
    """Return the median seconds of `compute_text_lstm` and of torch's LSTM, in alternating runs."""
    targets = [embeddings, *lstm.parameters()]

    def run_text_lstm() -> None:
        output = compute_text_lstm(lstm, embeddings, lengths)
        torch.autograd.grad(output.states.sum() + output.cells.sum(), targets)

    def run_torch_lstm() -> None:
        packed = pack_padded_sequence(embeddings, lengths, batch_first=True, enforce_sorted=False)
        states, (_, cells) = lstm(packed)
        torch.autograd.grad(states.data.sum() + cells.sum(), targets)

    times: dict[Callable[[], None], list[float]] = {run_text_lstm: [], run_torch_lstm: []}
    for call in (run_text_lstm, run_torch_lstm) * (RUNS + 1):
        begin = time.process_time()
        call()
        times[call].append(time.process_time() - begin)
    return statistics.median(times[run_text_lstm][1:]), statistics.median(times[run_torch_lstm][1:])


if __name__ == "__main__":
    main()
