"""Classifier that distinguishes human from other captions: an MLP on a retriever's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from pipeline.models.constructor_arguments import collect_constructor_arguments


class CaptionClassifier(nn.Module):
    """MLP with ReLU layers and two outputs on the vectors of a caption and its image (WTF-RL §3.2).

    Without `with_images` it takes the caption alone (the grammar score of Cho et al. 2022).
    """

    def __init__(self, size: int, hidden: Sequence[int] = (512, 256), with_images: bool = True) -> None:
        """Build the layers for vectors of length `size`."""
        super().__init__()
        self.arguments = collect_constructor_arguments(locals())
        self.size, self.with_images = size, with_images
        widths = [size * (2 if with_images else 1), *hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 2))

    def forward(self, images: Tensor, captions: Tensor) -> Tensor:
        """Compute the log-odds (N,) that captions (N, D) of images (N, D) are human.

        The sigmoid of the log-odds equals the softmax over both outputs.
        """
        other_logit, human_logit = self.layers(
            torch.cat([images, captions], 1) if self.with_images else captions
        ).unbind(1)
        log_odds: Tensor = human_logit - other_logit
        return log_odds
