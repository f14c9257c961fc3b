"""A speaker, a listener and a batch of the papers' size, and the speed of this machine's matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from pipeline.composition.joint import Agents
from pipeline.metrics.cider import CiderD, compute_document_frequencies
from pipeline.metrics.text_rewards import TextScorer
from pipeline.models.att2in import Att2in
from pipeline.models.listener import Listener
from pipeline.runtime import matmul_precision
from pipeline.types import Batch

IMAGES, REGIONS, SIZE, WORDS, LENGTH, BATCH = 1000, 36, 2048, 9487, 16, 128


SHAPES = ((128, 512, WORDS), (2048, 512, WORDS), (BATCH * REGIONS, SIZE, 512), (128, 512, 2560))
EOS_ODDS = {16: 0.0, 10: 0.065}
"""Mean length of captions of at most 16 words → odds of EOS at each step."""


def make_agents(length: int, device: str) -> tuple[Agents, Batch]:
    """Return random agents whose sampled captions have about `length` words, and a batch of captions of that length.

    `length` is a key of `EOS_ODDS`.
    """
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    lengths = np.full((IMAGES, 5), length)
    ids = np.minimum(rng.zipf(1.25, (IMAGES, 5, LENGTH)), WORDS)  # a few words are most frequent, as in human captions
    references = [
        [text[:n].tolist() for text, n in zip(*image, strict=True)] for image in zip(ids, lengths, strict=True)
    ]
    cider = CiderD.build(references, *compute_document_frequencies(references), IMAGES).to(device)
    speaker, listener = Att2in(WORDS, SIZE), Listener(WORDS, SIZE)
    captions = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    for row in range(BATCH):
        captions[row, :length] = torch.tensor(references[row % IMAGES][0])
    example = Batch(
        torch.arange(BATCH) % IMAGES,
        torch.randn(BATCH, SIZE),
        torch.randn(BATCH, REGIONS, SIZE).relu(),
        torch.ones(BATCH, REGIONS, dtype=torch.bool),
        captions,
    )
    with torch.no_grad():
        speaker.logit.bias[0] = float(np.log(max(EOS_ODDS[length], 1e-12) * WORDS))
    texts = TextScorer(str, lambda image: [])
    return Agents(speaker.to(device), listener.to(device), cider, texts), example.to(device)


def measure_matmul_rate(device: str) -> float:
    """Print and return this machine's floating-point operations per second in the fastest of the products in SHAPES.

    On a CPU, torch's own library and oneDNN are tried. Afterwards, the library that training uses is set.
    """
    rates = []
    for library in (matmul_precision.OWN, matmul_precision.ONEDNN):
        torch.set_float32_matmul_precision(library if device == "cpu" else matmul_precision.OWN)
        for rows, inner, columns in SHAPES:
            left, right = torch.randn(rows, inner, device=device), torch.randn(columns, inner, device=device)
            spent = measure_fastest(partial(torch.nn.functional.linear, left, right), device, 8)
            rates.append(2 * rows * inner * columns / spent)
    matmul_precision.choose_precision([Att2in(WORDS, SIZE), Listener(WORDS, SIZE)], torch.device(device))
    print(
        f"{device}, {torch.get_num_threads()} thread(s), matrix products at {max(rates) / 1e9:,.0f} GFLOP/s at best; "
        f"batch {BATCH}; float32 matmul precision: {matmul_precision.get_current_precision()}"
    )
    return max(rates)


def measure_fastest(call: Callable[[], object], device: str, times: int) -> float:
    """Return the seconds of the fastest of `times` calls after a warm-up; on one thread of a CPU, processor seconds."""
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    spent = []
    for _ in range(times + 1):
        began = clock()
        call()
        if device != "cpu":
            torch.cuda.synchronize()
        spent.append(clock() - began)
    return min(spent[1:])
