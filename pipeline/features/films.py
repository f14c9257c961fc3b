"""A film as a network for still images sees it: frame by frame, all frames' regions together.

A region's vector gets `COLUMNS` numbers more, which say when it is seen: the cosines of a discrete cosine transform
over the film. They are part of the features, so every speaker, listener and judge that takes regions takes films, and
a linear map of them tells any eight frames apart.
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

from pipeline.features.extractor import Extractor, NetworkSettings, Seen
from pipeline.features.images import shown
from pipeline.features.word_detector import Captions
from pipeline.runtime.films import frames_at, places, timeline

if TYPE_CHECKING:
    from PIL import Image

COLUMNS = 8


def open_film(path: Path, frames: int, rate: float | None = None) -> Iterator[Image.Image]:
    """The frames that `places` chooses of a film, an animated image or a still one, as RGB; one is in memory at a time.

    A still image is a film of equal frames. Raises FileNotFoundError where there is no file, and UserError where it
    cannot be decoded or is beyond the bounds of `pipeline.runtime.films`.
    """
    times = timeline(path)
    chosen = [(number, len(list(same))) for number, same in groupby(places(times.lasts, frames, rate, times.second))]
    decoded = frames_at(path, [number for number, _ in chosen], times)
    for (_, count), image in zip(chosen, decoded, strict=True):
        yield from repeat(shown(image), count)


def when(frames: int) -> Tensor:
    """(frames, COLUMNS): cos(kπt), k = 1, 2, …, at the middles t of as many equal parts of [0, 1]."""
    middles = (torch.arange(frames) + 0.5) / frames
    return torch.cos(math.pi * middles[:, None] * torch.arange(1, COLUMNS + 1))


class Films:
    """A network that sees films (Extractor) by one that sees images.

    Its regions are those of all frames, in the order of time; the vector is the mean of the frames' vectors, or with
    the setting `vector: times` all of them side by side, which tells their order.
    """

    def __init__(self, network: Extractor, settings: NetworkSettings):
        """`settings.frames` is at most how many frames a film has, all of which it has without `settings.rate`."""
        assert settings.frames is not None
        self.network, self.frames, self.side_by_side = network, settings.frames, settings.vector == "times"
        most, size = network.regions_shape
        self.pooled_size = network.pooled_size * (self.frames if self.side_by_side else 1)
        self.regions_shape = (most * self.frames, size + COLUMNS)
        self.has_boxes = network.has_boxes
        self.description = {**network.description, "frames": settings.frames, "rate": settings.rate}

    @property
    def model(self) -> Any:
        """The network's own."""
        return getattr(self.network, "model", None)

    def prepare(self, image: Image.Image | Iterable[Image.Image]) -> Tensor:
        """The frames of a film, or a still image as one, as the network's input (F, 3, H, W)."""
        tensors: list[Tensor] = []
        before = None
        for frame in image if isinstance(image, Iterable) else repeat(image, self.frames):
            tensors.append(tensors[-1] if frame is before else self.network.prepare(frame))
            before = frame
        return torch.stack(tensors)

    def __call__(self, images: Sequence[Tensor]) -> Seen:
        """The features of films, whose frames the network sees in one batch."""
        seen = self.network([frame for film in images for frame in film])
        exist = torch.arange(seen.regions.shape[1]) < seen.region_count.cpu().unsqueeze(1)
        regions = seen.regions.new_zeros(len(images), *self.regions_shape)
        boxes = None if seen.boxes is None else seen.boxes.new_zeros(*regions.shape[:2], 4)
        count, pooled, start = torch.zeros(len(images), dtype=torch.int64), [], 0
        for i, film in enumerate(images):
            part = slice(start, start := start + len(film))
            there = exist[part].to(regions.device)
            moments = when(len(film)).to(regions).unsqueeze(1).expand(-1, there.shape[1], -1)
            found = torch.cat([seen.regions[part], moments], 2)[there]
            count[i] = len(found)
            regions[i, : len(found)] = found
            if boxes is not None and seen.boxes is not None:
                boxes[i, : len(found)] = seen.boxes[part][there]
            pooled.append(seen.pooled[part].flatten() if self.side_by_side else seen.pooled[part].mean(0))
        return Seen(torch.stack(pooled), regions, count, boxes)


def of_films(network: Extractor, settings: NetworkSettings) -> Extractor:
    """The network, for films where the settings have `frames`."""
    return network if settings.frames is None else Films(network, settings)


@dataclass(frozen=True, eq=False)
class OfFrames:
    """The captions of films as those of their frames: frame f of film i is image i · `frames` + f."""

    films: Captions
    frames: int

    def references(self, images: np.ndarray) -> np.ndarray:
        """(n, K, T): up to K captions of T tokens of the films of n frames, padded with 0."""
        return self.films.references(images // self.frames)
