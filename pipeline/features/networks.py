"""Networks that see: what one must offer, and those that end in a map: timm's and torchvision's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.features.torchvision_cpu import declare_operators
from pipeline.features.weights import HUB, hugging_face_file, load_local, load_torchvision, short

if TYPE_CHECKING:
    from PIL import Image

TORCHVISION = "torchvision/"


class Seen(NamedTuple):
    """What a network sees in B images, each with at most R regions, the rest padded with 0."""

    pooled: Tensor  # (B, P)
    regions: Tensor  # (B, R, D)
    region_count: Tensor  # (B,)
    boxes: Tensor | None = None  # (B, R, 4): x1, y1, x2, y2 as shares of width and height, where regions were detected


class Extractor(Protocol):
    """A network with its preprocessing: a grid of cells, detected regions, or tokens are all sets of regions."""

    pooled_size: int  # P
    regions_shape: tuple[int, int]  # (R, D): at most R regions of an image
    has_boxes: bool  # regions were detected and have their boxes
    description: dict[str, Any]  # network, digest of its weights, preprocessing: what the manifest tells

    def prepare(self, image: Image.Image) -> Tensor:
        """An RGB image as the network wants it, (3, H, W); called in threads."""
        ...

    def __call__(self, images: Sequence[Tensor]) -> Seen:
        """What is seen in an image depends on no other of the batch."""
        ...


class GridNetwork:
    """A network that ends in a map (Extractor): its cells are the regions, its mean over the map is the vector.

    The preprocessing is the network's own, but the whole image is squashed to its square: a caption speaks of the
    whole image, so nothing is cropped away. With `cells` the map is averaged to cells × cells.
    """

    has_boxes = False

    def __init__(
        self,
        model: nn.Module,
        last_map: Callable[[Tensor], Tensor],
        preprocessing: Mapping[str, Any],
        description: dict[str, Any],
        cells: int | None,
        device: torch.device | str,
    ):
        from timm.data import create_transform

        self.model = model.eval().to(device, memory_format=torch.channels_last)
        self.cells, self.device, self._last_map = cells, torch.device(device), last_map
        self._transform = create_transform(**preprocessing, crop_pct=1.0, crop_mode="squash")
        seen = self([torch.zeros(preprocessing["input_size"])])
        self.pooled_size, self.regions_shape = seen.pooled.shape[1], (seen.regions.shape[1], seen.regions.shape[2])
        self.description = {**description, "preprocessing": dict(preprocessing)}

    def prepare(self, image: Image.Image) -> Tensor:
        return self._transform(image)

    @torch.inference_mode()
    def __call__(self, images: Sequence[Tensor]) -> Seen:
        pixels = torch.stack(list(images)).to(self.device, memory_format=torch.channels_last)
        regions = self._last_map(pixels)
        pooled = regions.mean((2, 3))
        if self.cells is not None:
            regions = F.adaptive_avg_pool2d(regions, self.cells)
        regions = regions.flatten(2).transpose(1, 2)
        return Seen(pooled, regions, torch.full((len(pixels),), regions.shape[1]))


class TimmNetwork(GridNetwork):
    """Any network of timm: its last feature map."""

    def __init__(
        self,
        name: str,
        weights: str,
        options: Mapping[str, Any],
        image_size: int,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        cells: int | None = None,
        device: torch.device | str = "cpu",
    ):
        """`weights` is `hub` or a safetensors file; `mean` and `std` (RGB) replace the network's own.

        Raises UserError for an unknown name, an option that the network does not take, or weights that are missing or
        of another network.
        """
        declare_operators()
        from timm.data import resolve_data_config

        model, source = _timm_model(name, weights, dict(options))
        given = {"mean": mean, "std": std, "input_size": (3, image_size, image_size)}
        config = resolve_data_config(
            {key: tuple(value) for key, value in given.items() if value is not None}, model=model
        )
        shown = {key: config[key] for key in ("input_size", "interpolation", "mean", "std")}
        description = {"network": name, "options": dict(options), "weights": source}
        super().__init__(model, lambda pixels: _timm_map(model, pixels), shown, description, cells, device)


class TorchvisionNetwork(GridNetwork):
    """A classifier of torchvision that averages a map, its resnets among them: that map.

    `torchvision/resnet101` has torchvision's default weights, `torchvision/resnet101.IMAGENET1K_V1` those.
    """

    def __init__(
        self,
        name: str,
        weights: str,
        options: Mapping[str, Any],
        image_size: int,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        cells: int | None = None,
        device: torch.device | str = "cpu",
    ):
        """As TimmNetwork; `options` go to torchvision's builder."""
        declare_operators()
        from torchvision import models

        short_name, _, tag = name.removeprefix(TORCHVISION).partition(".")
        if short_name not in models.list_models(module=models):
            raise UserError(f"features.network: torchvision has no network {short_name!r}; see its list_models()")
        known = models.get_model_weights(short_name)
        if tag and tag not in known.__members__:
            raise UserError(
                f"features.network: {short_name} has no weights {tag!r}; it has {', '.join(known.__members__)}"
            )
        entry = known[tag] if tag else known.DEFAULT
        model = torchvision_model(short_name, dict(options))
        layers = dict(model.named_children())
        if "avgpool" not in layers or hasattr(model, "aux_logits"):
            raise UserError(f"features.network: {short_name} of torchvision averages no map; see timm for the like")
        source = load_torchvision(model, entry, name) if weights == HUB else load_local(model, weights, name)
        trunk = nn.Sequential(*list(layers.values())[: list(layers).index("avgpool")])
        own = entry.transforms()
        shown = {
            "input_size": (3, image_size, image_size),
            "interpolation": own.interpolation.value,
            "mean": tuple(mean or own.mean),
            "std": tuple(std or own.std),
        }
        super().__init__(
            model, trunk, shown, {"network": name, "options": dict(options), "weights": source}, cells, device
        )


def torchvision_model(name: str, options: dict[str, Any]) -> nn.Module:
    """A network of torchvision, its weights still to be loaded; UserError for options that it does not take."""
    from torchvision import models

    parts = {"weights_backbone": None} if name.startswith("fasterrcnn_") else {}
    try:
        return models.get_model(name, weights=None, **parts, **options)
    except (TypeError, ValueError) as error:
        raise UserError(f"features.options: the network {name} does not take them ({short(error)})") from None


def _timm_model(name: str, weights: str, options: dict[str, Any]) -> tuple[nn.Module, dict[str, str]]:
    """The network with its weights, and where these are from."""
    import timm

    if name not in timm.list_models() and name.split(".")[0] not in timm.list_models():
        raise UserError(f"features.network: timm has no network {name!r}; see timm.list_models()")
    entry = timm.models.get_pretrained_cfg(name)
    overlay: dict[str, Any] | None = None
    source: dict[str, str] = {}
    if weights == HUB:
        if entry is None or not entry.hf_hub_id:
            raise UserError(f"features.weights: hub has no weights for {name}; give a safetensors file")
        path, source = hugging_face_file(entry.hf_hub_id, entry.hf_hub_filename or "model.safetensors", name)
        overlay = {"file": str(path), "custom_load": False}
    try:
        model = timm.create_model(name, pretrained=weights == HUB, pretrained_cfg_overlay=overlay, **options)
    except TypeError as error:
        raise UserError(f"features.options: the network {name} does not take them ({short(error)})") from None
    return model, source or load_local(model, weights, name)


def _timm_map(model: nn.Module, pixels: Tensor) -> Tensor:
    """(B, D, H, W), whether the network ends in such a map, in (B, H, W, D), or in tokens (B, prefix + H·W, D)."""
    features = model.forward_features(pixels)
    if features.dim() == 3:
        features = features[:, getattr(model, "num_prefix_tokens", 0) :]
        side = round(features.shape[1] ** 0.5)
        return features.transpose(1, 2).unflatten(2, (side, side))
    if features.shape[1] != model.num_features and features.shape[3] == model.num_features:
        features = features.permute(0, 3, 1, 2)
    return features
