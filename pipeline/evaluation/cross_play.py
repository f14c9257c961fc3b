"""Crossed listeners: every speaker's captions read by every listener, to tell captions from readers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pipeline.evaluation.judges import hear, see
from pipeline.metrics.retrieval import recall, search
from pipeline.models.listener import Listener


def crossed(
    captions: Mapping[str, Tensor], listeners: Mapping[str, Listener], pooled: Tensor, device: torch.device
) -> dict[str, dict[str, float]]:
    """R@10 from text to image: [speaker][listener] for `captions` (M, T) of the images `pooled` (M, P)."""
    found: dict[str, dict[str, float]] = {name: {} for name in captions}
    rows = torch.arange(len(pooled), device=device)
    for reader, listener in listeners.items():
        listener = listener.to(device).eval()
        seen = see(listener, pooled, device)
        for speaker, tokens in captions.items():
            found[speaker][reader] = recall(search(hear(listener, tokens, device), seen, rows).by_caption)["R@10"]
    return found
