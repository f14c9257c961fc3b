"""A small ResNet trained to predict the words of captions, where no pretrained weights are available.

Fang et al., From captions to visual concepts and back (CVPR 2015), predict words as labels of images. Here the target
of a word is the share of an image's captions that contain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from pipeline.features.extractor import GridNetwork, NetworkSettings
from pipeline.vocabulary import EOS


class CaptionReferences(Protocol):
    """Captions of images, as tokens."""

    def references(self, images: np.ndarray) -> np.ndarray:
        """Return captions (n, K, T) of n images: up to K of T tokens each, padded with 0."""
        ...


class WordDetector(nn.Module):
    """A network from images (B, 3, S, S), 0 … 255, to logits (B, V) of V words, by `regions` and `pooled`.

    The side of the feature map is S/16, or ⌈⌊S/4⌋/4⌉ where 16 does not divide S.
    """

    def __init__(self, words: int, width: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 6, 4, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.Sequential(
            _ResidualBlock(width, width, 1),
            _ResidualBlock(width, 2 * width, 2),
            _ResidualBlock(2 * width, 4 * width, 2),
        )
        self.standardised = nn.BatchNorm1d(8 * width, affine=False)
        self.words = nn.Linear(8 * width, words)

    def regions(self, pixels: Tensor) -> Tensor:
        """Return the last feature map (B, 4·width, H, W), which is not negative."""
        return self.stages(self.stem(pixels / 127.5 - 1))

    def pooled(self, regions: Tensor) -> Tensor:
        """Return vectors (B, 8·width): mean and maximum over the cells, each standardised.

        The batch's mean and deviation are used in training, and their running averages over training batches otherwise.
        """
        return self.standardised(torch.cat([regions.mean((2, 3)), regions.amax((2, 3))], 1))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.words(self.pooled(self.regions(pixels)))


class _ResidualBlock(nn.Module):
    """Two convolutions with a shortcut (He et al. 2016, basic block)."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        """Build the block for `inputs` and `outputs` channels."""
        super().__init__()
        self.body = nn.Sequential(
            _make_convolution(inputs, outputs, stride), nn.ReLU(), _make_convolution(outputs, outputs, 1)
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            # half of an odd size is rounded up, as in the strided convolution
            self.shortcut = nn.Sequential(
                nn.AvgPool2d(stride, ceil_mode=True), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def _make_convolution(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))


def compute_word_shares(references: np.ndarray, words: int) -> Tensor:
    """Return shares (n, words) of each image's captions (n, K, T) that contain each word 1 … `words`."""
    tokens = torch.from_numpy(references.astype(np.int64))
    captions = (tokens != EOS).any(-1).sum(-1, keepdim=True)
    contained = torch.zeros(*tokens.shape[:2], int(max(words, references.max(initial=0))) + 1)
    return contained.scatter_(2, tokens, 1.0)[..., 1 : words + 1].sum(1) / captions


@dataclass(frozen=True, eq=False)
class WordPrediction:
    """Training task of a `WordDetector`: binary cross-entropy of the share of captions with each word 1 … `words`.

    In mirrored images, words such as "left" are wrong.
    """

    captions: CaptionReferences
    words: int

    def build_network(self, width: int) -> WordDetector:
        """Build an untrained detector."""
        return WordDetector(self.words, width)

    def initialise(self, detector: WordDetector, rows: np.ndarray) -> None:
        """Initialise the biases with the logit of each word's frequency in at most 2,000 images, which saves epochs."""
        share = compute_word_shares(self.captions.references(rows[:2000]), self.words).mean(0).clamp(1e-4, 1 - 1e-4)
        with torch.no_grad():
            detector.words.bias.copy_(torch.logit(share))

    def loss(self, detector: WordDetector, pixels: Tensor, images: np.ndarray, mirrored: np.ndarray) -> Tensor:
        """Return the loss summed over words and B images: their pixels (B, 3, S, S) and rows `images` (B,)."""
        targets = compute_word_shares(self.captions.references(images), self.words).to(pixels.device)
        return F.binary_cross_entropy_with_logits(detector(pixels), targets, reduction="sum")


class WordDetectorNetwork(GridNetwork):
    """A detector trained in this project as an `Extractor`: the vector is the detector's `pooled`.

    An image is resized to a square, (3, S, S) uint8, whatever its aspect ratio.
    """

    def __init__(self, detector: nn.Module, settings: NetworkSettings, device: torch.device | str = "cpu"):
        size = settings.image_size
        preprocessing = {"input_size": [3, size, size], "interpolation": "bicubic"}
        description = {"network": settings.network, "preprocessing": preprocessing}
        super().__init__(detector, partial(resize_square, size=size), settings, description, device)

    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        regions = self.model.regions(pixels.float())
        return self.model.pooled(regions), regions


def resize_square(image: Image.Image, size: int) -> Tensor:
    """Return an RGB image resized to (3, size, size) uint8."""
    return torch.from_numpy(np.array(image.resize((size, size), Image.Resampling.BICUBIC)).transpose(2, 0, 1).copy())
