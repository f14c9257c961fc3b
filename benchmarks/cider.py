"""CIDEr-D as a reward: captions per second from token ids, compared with pycocoevalcap, on one thread.

    python benchmarks/cider.py [--images 113287] [--batches 128 256] [--device cuda]

Both scorers receive ready-made inputs (ids for this project, strings for pycocoevalcap) and the same document
frequencies. Each call has one batch of captions.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import numpy as np
import torch
from printing import begin_table
from pycocoevalcap.cider.cider_scorer import CiderScorer

from pipeline.metrics.cider import CiderD, compute_document_frequencies

WORDS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000, help="images with five references each")
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 256], help="numbers of captions per call")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)

    rng = np.random.default_rng(0)
    lengths = rng.integers(8, 15, (options.images, 5))
    # a few words are most frequent, as in human captions
    ids = np.minimum(rng.zipf(1.25, (options.images, 5, WORDS)), 9487)
    references = [
        [text[:n].tolist() for text, n in zip(*image, strict=True)] for image in zip(ids, lengths, strict=True)
    ]
    frequencies = compute_document_frequencies(references)
    began = time.perf_counter()
    scorer = CiderD.build(references, *frequencies, options.images).to(options.device)
    build_seconds = time.perf_counter() - began
    exact = CiderD.build(references, *frequencies, options.images, dtype=torch.float64)
    strings = [[_join_words(text) for text in texts] for texts in references]
    counter = CiderScorer()
    for texts in strings:
        counter += ("", texts)
    counter.compute_doc_freq()
    print(f"{options.images} images × 5 references, {len(frequencies[0]):,} n-grams, {options.device}")
    print(f"index built in {build_seconds:.2f} s")
    print_row = begin_table(
        "CIDEr-D as a reward: captions a second",
        *("captions a call", "ours", "pycocoevalcap", "ratio", "greatest difference in float64", "in float32"),
    )

    for batch in options.batches:
        images = rng.integers(0, options.images, batch)
        caption_ids = [references[image][row % 5] for row, image in enumerate(images)]
        for row in range(0, batch, 2):  # every other caption belongs to another image
            caption_ids[row] = references[(images[row] + 1) % options.images][0]
        tokens = torch.zeros(batch, WORDS, dtype=torch.long)
        for row, caption in zip(tokens, caption_ids, strict=True):
            row[: len(caption)] = torch.tensor(caption)
        rows = torch.from_numpy(images)
        on_device = tokens.to(options.device), rows.to(options.device)
        captions, caption_references = (
            [_join_words(caption) for caption in caption_ids],
            [strings[image] for image in images],
        )
        score_by_pycocoevalcap = functools.partial(
            _score_by_pycocoevalcap, captions, caption_references, counter.document_frequency, options.images
        )

        expected = score_by_pycocoevalcap()
        differences = [
            np.abs(scores.cpu().numpy() - expected).max() for scores in (exact(tokens, rows), scorer(*on_device))
        ]
        rate, pycocoevalcap_rate = (
            _measure_rate(lambda on_device=on_device: scorer(*on_device).cpu(), batch, 500),
            _measure_rate(score_by_pycocoevalcap, batch, 10),
        )
        print_row(
            batch,
            f"{rate:,.0f}",
            f"{pycocoevalcap_rate:,.0f}",
            f"{rate / pycocoevalcap_rate:.0f}",
            f"{differences[0]:.1e}",
            f"{differences[1]:.1e}",
        )


def _score_by_pycocoevalcap(
    captions: list[str], references: list[list[str]], frequencies: dict, images: int
) -> np.ndarray:
    scorer = CiderScorer()
    for caption, texts in zip(captions, references, strict=True):
        scorer += (caption, texts)
    scorer.document_frequency = frequencies
    scorer.crefs += [[]] * (images - len(captions))  # CiderScorer takes len(crefs) as the number of documents
    return np.array(scorer.compute_cider())


def _join_words(caption: list[int]) -> str:
    return " ".join(map(str, [*caption, 0] if len(caption) < WORDS else caption))


def _measure_rate(call: Callable[[], object], captions: int, times: int) -> float:
    """Return captions per second over the fastest fifth of the calls, which other work disturbs least."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return captions / float(np.mean(sorted(spent)[: max(1, times // 5)]))


if __name__ == "__main__":
    main()
