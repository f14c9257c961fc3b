"""Who said that? An MLP on a retriever's vectors that tells people's captions from others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class CaptionClassifier(nn.Module):
    """Hidden layers with ReLU and two outputs on a caption's vector, beside its image's where it `looks` (WTF-RL §3.2).

    Without images it judges the language alone (the grammar score of Cho et al. 2022).
    """

    def __init__(self, size: int, hidden: Sequence[int] = (512, 256), looks: bool = True) -> None:
        """`size`: of a vector."""
        super().__init__()
        self.arguments = {"size": size, "hidden": list(hidden), "looks": looks}
        self.size, self.looks = size, looks
        widths = [size * (2 if looks else 1), *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 2))

    def forward(self, images: Tensor, captions: Tensor) -> Tensor:
        """(N,): the log-odds that captions (N, D) of images (N, D) are people's; the softmax of both is its sigmoid."""
        other, human = self.layers(torch.cat([images, captions], 1) if self.looks else captions).unbind(1)
        return human - other
