"""Retrieval of images by captions and of captions by images: memory, and one-core seconds compared with argsort.

    python benchmarks/retrieval.py
    python benchmarks/retrieval.py --large 100000

The first table has the memory needed in addition to the vectors, for galleries whose score matrix takes gigabytes. By
default, there are 30,000 captions and as many images, because 100,000 take minutes; vectors have size 64 to save time.
The second table has the time of ranking 5,000 images for 5,000 captions, and the reverse. Seconds are CPU seconds of
all threads; with OMP_NUM_THREADS=1, they are those of one core.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from printing import begin_table, show_progress

from pipeline.metrics.retrieval import rank_gallery

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="size of a vector; the papers' listeners have 1024")
    parser.add_argument("--large", type=int, default=30_000, help="captions, and images, of the first table")
    parser.add_argument("--large-size", type=int, default=64)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        print("numpy takes all cores; run with OMP_NUM_THREADS=1")
    torch.set_num_threads(1)

    # memory is measured first, because a process reports only its peak memory so far
    captions, images = _draw_vectors(options.large, options.large, options.large_size)
    peak_before = _read_peak_memory()
    show_progress(f"ranks of {options.large:,} captions and images")
    seconds, _ = _measure_fastest(lambda: rank_gallery(captions, images, torch.arange(options.large), shown=5), 1)
    print_row = begin_table(
        "Memory of ranks both ways", "captions, images", "size", "s", "MB beside the vectors", "MB of all scores"
    )
    memory = f"{(_read_peak_memory() - peak_before) / 1e6:,.0f}", f"{options.large**2 * 4 / 1e6:,.0f}"
    print_row(f"{options.large:,}", options.large_size, f"{seconds:.0f}", *memory)

    show_progress("ranks of 5,000 captions and images, by this project and by argsort")
    captions, images = _draw_vectors(5000, 5000, options.size)
    owners = torch.arange(5000)
    own_seconds, ranks = _measure_fastest(lambda: rank_gallery(captions, images, owners), 5)
    top_five_seconds, _ = _measure_fastest(lambda: rank_gallery(captions, images, owners, shown=5), 5)
    argsort_seconds, (by_caption, by_image) = _measure_fastest(
        lambda: _rank_by_argsort(captions.numpy(), images.numpy()), 3
    )
    count = int((ranks.by_caption.numpy() != by_caption).sum() + (ranks.by_image.numpy() != by_image).sum())
    print_row = begin_table(
        f"Ranks both ways, 5,000 captions and images of size {options.size}", "by", "s of one core", "ratio", first=44
    )
    print_row("ours", f"{own_seconds:.2f}", "1.0")
    print_row(
        "ours, with the five images that come first", f"{top_five_seconds:.2f}", f"{top_five_seconds / own_seconds:.1f}"
    )
    print_row("numpy argsort", f"{argsort_seconds:.2f}", f"{argsort_seconds / own_seconds:.1f}")
    print(f"\ndifferent ranks: {count} of 10,000 (rank_gallery alone counts scores equal in single precision as ties)")


def _draw_vectors(captions: int, images: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(count, size, generator=generator) for count in (captions, images)]
    return torch.nn.functional.normalize(vectors[0], dim=1), torch.nn.functional.normalize(vectors[1], dim=1)


def _rank_by_argsort(captions: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute ranks (N,) by caption and by image as published code does: sort each row, and find the target's index."""
    scores = captions.astype(np.float64) @ images.T.astype(np.float64)
    targets = np.arange(len(scores))[:, None]
    return tuple((np.argsort(-matrix, axis=1) == targets).argmax(1) + 1 for matrix in (scores, scores.T))


def _measure_fastest(call: Callable[[], T], times: int) -> tuple[float, T]:
    """Return the fewest CPU seconds of `times` calls, and the result of the last call."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        result = call()
        spent.append(time.process_time() - began)
    return min(spent), result


def _read_peak_memory() -> float:
    """Return the peak resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
