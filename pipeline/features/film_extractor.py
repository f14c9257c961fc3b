"""Film features from a network for still images: the regions of all frames together.

A region's vector gets `COLUMNS` more numbers that encode its time: the cosines of a discrete cosine transform over the
film. These numbers are part of the regions, so networks that take the regions of images also take those of films. With
a bias, the cosines let a linear map assign any value to each frame of a film of at most nine frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pipeline.features.extractor import Extractor, ImageFeatures, NetworkSettings
from pipeline.features.images import to_upright_rgb
from pipeline.features.word_detector import CaptionReferences
from pipeline.runtime.film_decoding import DEFAULT_DURATION, choose_frame_indices, decode_frames, read_timeline

if TYPE_CHECKING:
    from PIL import Image

COLUMNS = 8


def open_film(path: Path, frames: int, rate: float | None = None) -> Iterator[Image.Image]:
    """Yield the frames of a film that `choose_frame_indices` selects, as RGB, with one frame in memory at a time.

    An animated image is a film, and a still image is a film of equal frames. Raises FileNotFoundError where there is no
    file, and UserError where the file cannot be decoded or exceeds the limits of `pipeline.runtime.film_decoding`.
    """
    timeline = read_timeline(path)
    frame_numbers = choose_frame_indices(timeline.durations, frames, rate, timeline.ticks_per_second)
    repeats = [(number, len(list(group))) for number, group in groupby(frame_numbers)]
    decoded = decode_frames(path, [number for number, _ in repeats], timeline)
    for (_, count), image in zip(repeats, decoded, strict=True):
        yield from repeat(to_upright_rgb(image), count)


def compute_time_features(frames: int) -> Tensor:
    """Return (frames, COLUMNS): cos(kπt), k = 1, 2, …, at the midpoints t of `frames` equal parts of [0, 1]."""
    midpoints = (torch.arange(frames) + 0.5) / frames
    return torch.cos(math.pi * midpoints[:, None] * torch.arange(1, COLUMNS + 1))


class FilmExtractor:
    """An `Extractor` of films that applies a network for images to each frame.

    Its regions are the regions of all frames, in the order of time. The vector is the mean of the frames' vectors. With
    the setting `vector: times` it is their concatenation, which preserves their order.
    """

    def __init__(self, network: Extractor, settings: NetworkSettings):
        """Wrap `network`.

        `settings.frames` is the number of a film's frames, or with `settings.frames_per_second` the largest number.
        """
        assert settings.frames is not None
        self.network, self.frames, self.concatenates = network, settings.frames, settings.vector == "times"
        self.still_frames = len(choose_frame_indices([DEFAULT_DURATION], self.frames, settings.frames_per_second))
        max_regions, size = network.regions_shape
        self.pooled_size = network.pooled_size * (self.frames if self.concatenates else 1)
        self.regions_shape = (max_regions * self.frames, size + COLUMNS)
        self.has_boxes = network.has_boxes
        self.description = {**network.description, "frames": settings.frames, "rate": settings.frames_per_second}

    @property
    def model(self) -> Any:
        """Return the model of the wrapped network, or None for a network without a model."""
        return getattr(self.network, "model", None)

    def prepare(self, image: Image.Image | Iterable[Image.Image]) -> Tensor:
        """Return the frames of a film as the network's input (F, 3, H, W).

        A still image has as many frames as `open_film` yields for its file.
        """
        tensors: list[Tensor] = []
        previous = None
        for frame in image if isinstance(image, Iterable) else repeat(image, self.still_frames):
            tensors.append(tensors[-1] if frame is previous else self.network.prepare(frame))
            previous = frame
        return torch.stack(tensors)

    def __call__(self, images: Sequence[Tensor]) -> ImageFeatures:
        """Return the features of films; one call of the network takes all their frames."""
        features = self.network([frame for film in images for frame in film])
        mask = torch.arange(features.regions.shape[1]) < features.region_count.cpu().unsqueeze(1)
        regions = features.regions.new_zeros(len(images), *self.regions_shape)
        boxes = None if features.boxes is None else features.boxes.new_zeros(*regions.shape[:2], 4)
        count, pooled, start = torch.zeros(len(images), dtype=torch.int64), [], 0
        for i, film in enumerate(images):
            part = slice(start, start := start + len(film))
            existing = mask[part].to(regions.device)
            times = compute_time_features(len(film)).to(regions).unsqueeze(1).expand(-1, existing.shape[1], -1)
            timed = torch.cat([features.regions[part], times], 2)[existing]
            count[i] = len(timed)
            regions[i, : len(timed)] = timed
            if boxes is not None and features.boxes is not None:
                boxes[i, : len(timed)] = features.boxes[part][existing]
            pooled.append(features.pooled[part].flatten() if self.concatenates else features.pooled[part].mean(0))
        return ImageFeatures(torch.stack(pooled), regions, count, boxes)


def wrap_for_films(network: Extractor, settings: NetworkSettings) -> Extractor:
    """Return the network, wrapped for films if the settings have `frames`."""
    return network if settings.frames is None else FilmExtractor(network, settings)


@dataclass(frozen=True, eq=False)
class FrameCaptions:
    """Captions of films, by frame: frame f of film i is image i · `frames` + f."""

    films: CaptionReferences
    frames: int

    def references(self, images: np.ndarray) -> np.ndarray:
        """Return captions (n, K, T) of the films of n frames: up to K of T tokens each, padded with 0."""
        return self.films.references(images // self.frames)
