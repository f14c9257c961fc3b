"""Cross-play: every speaker's captions read by every listener, to tell captions from readers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pipeline.evaluation.judges import Judge, Spoken
from pipeline.metrics.retrieval import recall, search


def cross_play(
    captions: Mapping[str, Spoken], judges: Mapping[str, Judge], gallery: Tensor
) -> dict[str, dict[str, float]]:
    """R@10 from text to image, by speaker and then by judge, for captions of the images `gallery` (M,), one each."""
    found: dict[str, dict[str, float]] = {name: {} for name in captions}
    for reader, judge in judges.items():
        for speaker, said in captions.items():
            heard, seen = judge.vectors(said, gallery)
            rows = torch.arange(len(gallery), device=seen.device)
            found[speaker][reader] = recall(search(heard, seen, rows).by_caption)["R@10"]
    return found
