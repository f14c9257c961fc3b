"""CIDEr-D as a reward: captions per second on ids against pycocoevalcap on the same captions, one thread.

    python benchmarks/cider.py

Both get ready-made inputs (ids here, strings there), the same document frequencies, and one batch of captions a call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from pycocoevalcap.cider.cider_scorer import CiderScorer

from pipeline.metrics.cider import CiderD, document_frequencies

WORDS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000, help="images with five references each")
    parser.add_argument("--batch", type=int, default=128, help="captions a call")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)

    rng = np.random.default_rng(0)
    lengths = rng.integers(8, 15, (options.images, 5))
    ids = np.minimum(rng.zipf(1.25, (options.images, 5, WORDS)), 9487)  # a few words say most, as in human captions
    references = [
        [text[:n].tolist() for text, n in zip(*image, strict=True)] for image in zip(ids, lengths, strict=True)
    ]
    began = time.perf_counter()
    scorer = CiderD.build(references, *document_frequencies(references), options.images).to(options.device)
    built = time.perf_counter() - began

    images = rng.integers(0, options.images, options.batch)
    said = [references[image][row % 5] for row, image in enumerate(images)]
    for row in range(0, options.batch, 2):  # every other caption is of another image
        said[row] = references[(images[row] + 1) % options.images][0]
    tokens = torch.zeros(options.batch, WORDS, dtype=torch.long)
    for row, caption in zip(tokens, said, strict=True):
        row[: len(caption)] = torch.tensor(caption)
    tokens, rows = tokens.to(options.device), torch.from_numpy(images).to(options.device)

    strings = [[_as_words(text) for text in texts] for texts in references]
    counter = CiderScorer()
    for texts in strings:
        counter += ("", texts)
    counter.compute_doc_freq()
    captions = [_as_words(caption) for caption in said]

    def theirs() -> np.ndarray:
        peer = CiderScorer()
        for caption, image in zip(captions, images, strict=True):
            peer += (caption, strings[image])
        peer.document_frequency = counter.document_frequency
        peer.crefs += [[]] * (options.images - len(captions))  # it takes the number of documents from here
        return np.array(peer.compute_cider())

    apart = np.abs(scorer(tokens, rows).cpu().numpy() - theirs()).max()
    ours, peers = _rate(lambda: scorer(tokens, rows).cpu(), options.batch, 200), _rate(theirs, options.batch, 5)
    print(f"{options.images} images × 5 references, {options.batch} captions a call, {options.device}")
    print(f"index built in {built:.2f} s; greatest difference of a score {apart:.1e}")
    print(f"ours          {ours:>10,.0f} captions/s")
    print(f"pycocoevalcap {peers:>10,.0f} captions/s")
    print(f"ratio         {ours / peers:>10.1f}")


def _as_words(caption: list[int]) -> str:
    return " ".join(map(str, [*caption, 0] if len(caption) < WORDS else caption))


def _rate(call: Callable[[], object], captions: int, times: int) -> float:
    """Captions a second of the fastest fifth of the calls, which other work on the machine disturbed least."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return captions / float(np.mean(sorted(spent)[: max(1, times // 5)]))


if __name__ == "__main__":
    main()
