"""Growth of cost with batch, words, vocabulary, regions, gallery and images, with a figure.

    python benchmarks/growth.py

Each size is doubled repeatedly. The exponent of a series is the slope of log cost over log size between the two largest
sizes: 1 is linear, 2 is quadratic.
"""

from __future__ import annotations

import argparse
from functools import partial
from math import log2
from pathlib import Path

import numpy as np
import torch
from joint_step import make_step
from paper_size import measure_fastest
from printing import begin_table, show_progress

from pipeline.composition.joint import Agents
from pipeline.metrics.cider import CiderD, compute_document_frequencies
from pipeline.metrics.retrieval import rank_gallery
from pipeline.metrics.text_rewards import TextScorer
from pipeline.models.att2in import Att2in
from pipeline.models.listener import Listener
from pipeline.runtime.memory import keep_freed
from pipeline.types import Batch

BASE = {"batch": 32, "words": 8, "vocabulary": 1000, "regions": 18}
SIZES = {
    "batch": [16, 32, 64, 128],
    "words": [4, 8, 16, 32],
    "vocabulary": [1000, 2000, 4000, 8000, 16000],
    "regions": [9, 18, 36, 72],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, default=Path("data/benchmarks/growth.png"), metavar="PNG")
    parser.add_argument(
        "--times", type=int, default=3, help="repetitions, of which the fastest counts; the CIDEr-D index is timed once"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed()
    show_progress("steps of growing size")
    series = {
        f"PSST step, {name}": [(size, measure_joint_step(options.times, **{name: size})) for size in sizes]
        for name, sizes in SIZES.items()
    }
    show_progress("recall in growing galleries, and CIDEr-D of growing corpora")
    series["recall in both directions, gallery"] = [
        (n, measure_recall(n, options.times)) for n in (1000, 2000, 4000, 8000)
    ]
    series["CIDEr-D index, images"] = [(n, measure_index(n)) for n in (1000, 2000, 4000, 8000)]
    print_row = begin_table("Growth of cost", "cost of", "sizes", "seconds", "exponent", first=28)
    for name, points in series.items():
        sizes, seconds = zip(*points, strict=True)
        exponent = log2(seconds[-1] / seconds[-2]) / log2(sizes[-1] / sizes[-2])
        cells = " ".join(f"{size:,}" for size in sizes), " ".join(f"{value:.3g}" for value in seconds)
        print_row(name, *cells, f"{exponent:.2f}")
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    draw(series, options.figure)


def measure_joint_step(times: int, **sizes: int) -> float:
    """Return the seconds of the fastest of `times` PSST steps of the papers' widths.

    `sizes` replace values of BASE: batch, words, vocabulary and regions.
    """
    batch, words, vocabulary, regions = (sizes.get(name, value) for name, value in BASE.items())
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    references = rng.integers(1, vocabulary + 1, (batch, 5, words)).tolist()
    cider = CiderD.build(references, *compute_document_frequencies(references, max_words=words), batch, max_words=words)
    speaker = Att2in(vocabulary, 2048, max_words=words)
    with torch.no_grad():
        speaker.logit.bias[0] = -30  # no caption ends early
    captions = torch.tensor(references)[:, 0]
    mask = torch.ones(batch, regions, dtype=torch.bool)
    example = Batch(torch.arange(batch), torch.randn(batch, 2048), torch.randn(batch, regions, 2048), mask, captions)
    agents = Agents(speaker, Listener(vocabulary, 2048), cider, TextScorer(str, lambda image: []))
    return measure_fastest(make_step("psst_multinomial", agents, example), "cpu", times)


def measure_recall(gallery: int, times: int) -> float:
    vectors = torch.nn.functional.normalize(torch.randn(2, gallery, 256), dim=-1)
    return measure_fastest(partial(rank_gallery, vectors[0], vectors[1], torch.arange(gallery)), "cpu", times)


def measure_index(images: int) -> float:
    rng = np.random.default_rng(0)
    references = np.minimum(rng.zipf(1.25, (images, 5, 12)), 9487).tolist()

    def build_index() -> None:
        CiderD.build(references, *compute_document_frequencies(references), images)

    return measure_fastest(build_index, "cpu", 1)


def draw(series: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Draw the series on logarithmic axes into the file `path`; a line of slope 1 is linear growth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.5), dpi=130, layout="constrained")
    grid = figure.subplots(2, 3)
    for axes, (name, points) in zip(grid.flat, series.items(), strict=True):
        sizes, seconds = zip(*points, strict=True)
        axes.loglog(sizes, seconds, "o-", color="#0072B2", base=2, label="measured")
        linear = [seconds[0] * size / sizes[0] for size in sizes]
        axes.loglog(sizes, linear, "--", color="#888888", base=2, label="linear")
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_ylabel("seconds, one core")
        axes.minorticks_off()
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    grid.flat[0].legend(frameon=False, fontsize=9)
    figure.savefig(path)


if __name__ == "__main__":
    main()
