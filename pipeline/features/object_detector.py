"""A small ResNet trained on boxes of objects with names and attributes, for data with such annotations.

Anderson et al., Bottom-up and top-down attention (CVPR 2018), train the feature extractors of captioners on objects and
attributes of Visual Genome. Here each cell of the last map predicts the labels of the objects that cover it. The whole
image predicts the labels of the scene.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.features.word_detector import WordDetector

MIN_COVERAGE = 0.3  # share of a cell that an object's box must cover for the cell to have the object's labels
Box = tuple[float, float, float, float]


class AnnotatedImage(NamedTuple):
    """The annotation of one image: labels of the scene, and of the object in each box.

    Boxes are left, top, right, bottom in fractions of the image, y downwards.
    """

    scene: tuple[str, ...]
    objects: tuple[tuple[Box, tuple[str, ...]], ...]


class ObjectDetector(nn.Module):
    """A network from images (B, 3, S, S), 0 … 255, to logits of object `labels` per cell and of `scene` labels."""

    def __init__(self, labels: int, scene: int, width: int):
        super().__init__()
        self.whole = WordDetector(scene, width)
        self.objects = nn.Conv2d(4 * width, labels, 1)

    def regions(self, pixels: Tensor) -> Tensor:
        """Return the last feature map (B, 4·width, H, W), not negative."""
        return self.whole.regions(pixels)

    def pooled(self, regions: Tensor) -> Tensor:
        """Return (B, 8·width): mean and maximum over the cells, each standardised as by `WordDetector.pooled`."""
        return self.whole.pooled(regions)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, labels, H, W) of object labels and (B, scene) of scene labels."""
        regions = self.regions(pixels)
        return self.objects(regions), self.whole.words(self.pooled(regions))


@dataclass(frozen=True, eq=False)
class ObjectDetection:
    """Training task of an `ObjectDetector`: binary cross-entropy of the labels of `images`, by row."""

    images: Sequence[AnnotatedImage]

    @cached_property
    def labels(self) -> Mapping[str, int]:
        """Return the labels of objects, numbered in alphabetical order."""
        return _index_labels(label for image in self.images for _, labels in image.objects for label in labels)

    @cached_property
    def scene(self) -> Mapping[str, int]:
        """Return the labels of scenes, numbered in alphabetical order."""
        return _index_labels(label for image in self.images for label in image.scene)

    def build_network(self, width: int) -> ObjectDetector:
        """Build an untrained detector."""
        return ObjectDetector(len(self.labels), len(self.scene), width)

    def initialise(self, detector: ObjectDetector, rows: np.ndarray) -> None:
        """Do nothing: up to half of all labels may apply, which suits the default initialisation."""

    def loss(self, detector: ObjectDetector, pixels: Tensor, images: np.ndarray, mirrored: np.ndarray) -> Tensor:
        """Return the loss (), summed over images, scene labels, and object labels in each cell."""
        objects, scene = detector(pixels)
        annotations = [self.images[row] for row in images.tolist()]
        cell_targets = np.stack([self.cells(annotation, *objects.shape[2:]) for annotation in annotations])
        cell_targets[mirrored] = cell_targets[mirrored, ..., ::-1]
        scene_targets = np.zeros(scene.shape, np.float32)
        for row, annotation in enumerate(annotations):
            scene_targets[row, [self.scene[label] for label in annotation.scene]] = 1
        pairs = ((objects, torch.from_numpy(cell_targets)), (scene, torch.from_numpy(scene_targets)))
        losses = [
            F.binary_cross_entropy_with_logits(logits, targets.to(logits.device), reduction="sum")
            for logits, targets in pairs
        ]
        return losses[0] + losses[1]

    def cells(self, image: AnnotatedImage, height: int, width: int) -> np.ndarray:
        """Return targets (labels, height, width): 1 if a box of the label covers at least MIN_COVERAGE of a cell."""
        targets = np.zeros((len(self.labels), height, width), np.float32)
        for (left, top, right, bottom), labels in image.objects:
            covered = (
                np.outer(_compute_cell_shares(top, bottom, height), _compute_cell_shares(left, right, width))
                >= MIN_COVERAGE
            )
            targets[[self.labels[label] for label in labels]] += covered
        return np.minimum(targets, 1)


def _index_labels(labels: Iterable[str]) -> dict[str, int]:
    return {label: number for number, label in enumerate(sorted(set(labels)))}


def _compute_cell_shares(start: float, end: float, cells: int) -> np.ndarray:
    """Return the share of each of `cells` equal cells of [0, 1] that lies between `start` and `end`."""
    edges = np.arange(cells + 1) / cells
    return np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0, None) * cells
