"""Cost of teacher forcing on steps after the ends of captions, and the time that fewer steps save.

    python benchmarks/caption_lengths.py [--prepared data/prepared]

The first table has the share of all steps after the end of each caption. It also has the share after the longest
caption of a batch, for shuffled batches and for batches of captions of one length. Captions come from a prepared data
set, or have lengths like COCO's. The second table times a step (forward and backward) of speaker and listener, of the
papers' size, over 16 and over 12 columns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from printing import begin_table

from pipeline.data.prepared import PreparedData
from pipeline.models.att2in import Att2in
from pipeline.models.listener import Listener
from pipeline.models.unroll import teacher_force
from pipeline.types import Batch, Message, make_caption_mask

WORDS, ROWS = 16, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepared", type=Path)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng, width = np.random.default_rng(0), WORDS
    lengths = np.clip(rng.gamma(20, 10.45 / 20, 566_000).round().astype(int), 5, WORDS)  # COCO's mean and spread
    if options.prepared:
        tokens = PreparedData.load(options.prepared).tokens
        lengths, width = (tokens != 0).sum(1), tokens.shape[1]
    steps = np.minimum(lengths + 1, width)  # the words and the EOS
    shuffled_longest, sorted_longest = (
        order[: len(order) // options.batch * options.batch].reshape(-1, options.batch).max(1)
        for order in (rng.permutation(steps), np.sort(steps))
    )
    print(
        f"{len(steps)} captions of {lengths.mean():.1f} words on average, {(lengths == width).mean():.1%} have {width}"
    )
    print_row = begin_table("Steps after the ends of captions", "after", "of all steps", first=44)
    print_row("the end of each caption", f"{1 - steps.mean() / width:.1%}")
    print_row(f"the longest of {options.batch} shuffled captions", f"{1 - shuffled_longest.mean() / width:.1%}")
    print_row(f"the longest of {options.batch} captions of one length", f"{1 - sorted_longest.mean() / width:.1%}")

    speaker, listener = Att2in(9487, 2048), Listener(9487, 2048)

    def run_speaker(batch: Batch) -> None:
        log_probs = teacher_force(speaker, batch).log_probs
        assert log_probs is not None
        log_probs.sum().backward()

    def run_listener(batch: Batch) -> None:
        rows = torch.arange(ROWS)
        listener.encode_text(Message(batch.captions, make_caption_mask(batch.captions), rows, 1)).sum().backward()

    print_row = begin_table(
        f"Time saved by shorter batches, {ROWS} captions", "step", "16 columns, s", "12 columns, s", "saved"
    )
    for name, step in (("teacher forcing", run_speaker), ("text encoding", run_listener)):
        full_seconds, short_seconds = _measure_seconds(step, WORDS), _measure_seconds(step, 12)
        print_row(name, f"{full_seconds:.3f}", f"{short_seconds:.3f}", f"{1 - short_seconds / full_seconds:.0%}")


def _measure_seconds(step: Callable[[Batch], None], columns: int) -> float:
    """Return the smallest CPU seconds of seven steps over captions of 7 to 11 words in `columns` columns."""
    torch.manual_seed(0)
    captions = torch.randint(1, 9487, (ROWS, columns))
    captions[torch.arange(columns) >= torch.randint(7, 12, (ROWS, 1))] = 0
    regions, mask = torch.rand(ROWS, 36, 2048), torch.ones(ROWS, 36, dtype=torch.bool)
    batch, spent = Batch(torch.arange(ROWS), regions.mean(1), regions, mask, captions), []
    for _ in range(7):
        began = time.process_time()
        step(batch)
        spent.append(time.process_time() - began)
    return min(spent)


if __name__ == "__main__":
    main()
