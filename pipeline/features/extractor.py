"""Feature extractors: settings, output, interface, and the base class of networks with a feature map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.features.network_weights import HUB

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class NetworkSettings:
    """The network that extracts features, its weights, and its preprocessing.

    `options` go to the library that builds the network. `mean` and `std` (RGB) replace the network's own. A feature map
    is averaged to `grid_size` × `grid_size` cells; `boxes` limits the regions of a detector. With
    `vector: mean_and_max` an image's vector is the mean and the maximum over its map, not the network's own. `frames`
    is the largest number of frames of a film. They are taken at `frames_per_second`, or else spread evenly. With
    `vector: times` the frames' vectors are concatenated.
    """

    network: str
    image_size: int = 0  # pixels; 0 with hub/…: the size of the model's processor
    weights: str = HUB  # or a safetensors file
    options: Mapping[str, Any] = field(default_factory=dict)
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    grid_size: int | None = None
    boxes: Mapping[str, Any] | None = None
    vector: Literal["mean_and_max", "times"] | None = None
    frames: int | None = None
    frames_per_second: float | None = None

    @property
    def normalisation(self) -> dict[str, tuple[float, ...]]:
        """Return `mean` and `std` by name; an unset value is omitted."""
        settings = {"mean": self.mean, "std": self.std}
        return {key: tuple(value) for key, value in settings.items() if value is not None}

    def describe(self, weights: Mapping[str, str], preprocessing: Mapping[str, Any], **entries: Any) -> dict[str, Any]:
        """Return the network's entries in the manifest, and other `entries`; `weights` is the source of its weights."""
        names = {"network": self.network, "options": dict(self.options), "weights": weights}
        return {**names, **entries, "preprocessing": dict(preprocessing)}


class ImageFeatures(NamedTuple):
    """The features of B images, each with at most R regions, padded with 0."""

    pooled: Tensor  # (B, P)
    regions: Tensor  # (B, R, D)
    region_count: Tensor  # (B,)
    boxes: Tensor | None = None  # (B, R, 4): x1, y1, x2, y2 as shares of width and height, for detected regions


class Extractor(Protocol):
    """A network with its preprocessing; its regions are the cells of a grid, detected regions or tokens."""

    pooled_size: int  # P
    regions_shape: tuple[int, int]  # (R, D): at most R regions of an image
    has_boxes: bool  # True for detected regions with boxes
    description: dict[str, Any]  # for the manifest: network, digest of its weights, preprocessing

    def prepare(self, image: Image.Image) -> Tensor:
        """Return an RGB image as the network's input (3, H, W); several threads may call this."""
        ...

    def __call__(self, images: Sequence[Tensor]) -> ImageFeatures:
        """Return the features of prepared images; an image's features do not depend on the rest of the batch."""
        ...


class GridNetwork(ABC):
    """A network as an `Extractor`, whose regions are the cells of its last feature map."""

    has_boxes = False
    memory_format = torch.channels_last

    def __init__(
        self,
        model: nn.Module,
        transform: Callable[[Image.Image], Tensor],
        settings: NetworkSettings,
        description: dict[str, Any],
        device: torch.device | str,
    ):
        self.model: Any = model.eval().to(device).to(memory_format=self.memory_format)  # type: ignore[call-overload]
        self.grid_size, self.vector = settings.grid_size, settings.vector
        self.device, self.description = torch.device(device), description
        self._transform = transform
        # ones, since some networks take zeros for padding
        features = self([torch.ones(3, settings.image_size, settings.image_size)])
        _, regions, size = features.regions.shape
        self.pooled_size, self.regions_shape = features.pooled.shape[1], (regions, size)

    @abstractmethod
    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors (B, P) and the maps (B, D, H, W) of images (B, 3, S, S)."""

    def prepare(self, image: Image.Image) -> Tensor:
        return self._transform(image)

    @torch.inference_mode()
    def __call__(self, images: Sequence[Tensor]) -> ImageFeatures:
        pooled, regions = self._extract(torch.stack(list(images)).to(self.device, memory_format=self.memory_format))
        if self.vector == "mean_and_max":
            pooled = torch.cat([regions.mean((2, 3)), regions.amax((2, 3))], 1)
        if self.grid_size is not None:
            regions = F.adaptive_avg_pool2d(regions, self.grid_size)
        regions = regions.flatten(2).transpose(1, 2)
        return ImageFeatures(pooled, regions, torch.full((len(images),), regions.shape[1]))
