"""Networks of timm and torchvision whose last feature map is used.

The interpolation is the network's own. The mean and deviation are the network's, unless the settings have others. The
image is squashed to a square: a caption describes the entire image, so nothing is cropped. The vector is the mean over
the map, or with `vector: mean_and_max` the mean and maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.errors import UserError, summarise_error
from pipeline.features.extractor import GridNetwork, NetworkSettings
from pipeline.features.network_weights import HUB, check_fit, fetch_hub_file, load_local, load_torchvision
from pipeline.runtime.options import check_options, explain_build_error
from pipeline.runtime.torchvision_cpu import declare_operators

if TYPE_CHECKING:
    from PIL import Image

TORCHVISION = "torchvision/"
BUILD_ERRORS = (TypeError, ValueError, AssertionError, RuntimeError, IndexError)  # the libraries' errors for arguments


class TimmNetwork(GridNetwork):
    """A network of timm whose output is a square feature map, or the tokens of a square grid."""

    def __init__(self, settings: NetworkSettings, device: torch.device | str = "cpu"):
        """Build the network.

        Raises UserError for an unknown name, and for an option or image size that the network does not take. Raises
        UserError for weights that are missing or of another network, and for a network without a square map.
        """
        declare_operators()
        from timm.data import resolve_data_config

        model, source = _build_timm_model(settings.network, settings.weights, dict(settings.options))
        arguments = {**settings.normalisation, "input_size": (3, settings.image_size, settings.image_size)}
        config = resolve_data_config(arguments, model=model)
        preprocessing = {key: config[key] for key in ("input_size", "interpolation", "mean", "std")}
        self._name = settings.network
        with _explain_size_errors(settings):
            super().__init__(
                model, _make_squash_transform(preprocessing), settings, settings.describe(source, preprocessing), device
            )

    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        feature_map = _compute_timm_map(self.model, pixels, self._name)
        return feature_map.mean((2, 3)), feature_map


class TorchvisionNetwork(GridNetwork):
    """A classifier of torchvision that averages its last feature map, such as a ResNet.

    `torchvision/resnet101` has torchvision's default weights, and `torchvision/resnet101.IMAGENET1K_V1` has the weights
    of that name.
    """

    def __init__(self, settings: NetworkSettings, device: torch.device | str = "cpu"):
        """Build the network; raises UserError as TimmNetwork does, and for a network without an averaged map."""
        declare_operators()
        from torchvision import models

        name, _, tag = settings.network.removeprefix(TORCHVISION).partition(".")
        if name not in models.list_models(module=models):
            raise UserError(f"features.network: torchvision has no network {name!r}; name one of its list_models()")
        weights = models.get_model_weights(name)
        if tag and tag not in weights.__members__:
            raise UserError(
                f"features.network: {name} has no weights {tag!r}; name one of {', '.join(weights.__members__)}"
            )
        entry = weights[tag] if tag else weights.DEFAULT
        options = check_options("torchvision", name, dict(settings.options))  # before any file is read
        check_fit(lambda: build_torchvision_model(name, options), settings.weights, settings.network)
        model = build_torchvision_model(name, options)
        layers = dict(model.named_children())
        if "avgpool" not in layers or hasattr(model, "aux_logits"):
            raise UserError(
                f"features.network: {name} of torchvision does not end in a map that is averaged; name another network"
                ", such as one of timm"
            )
        source = load_torchvision(model, settings.weights, entry, settings.network)
        self._trunk = nn.Sequential(*list(layers.values())[: list(layers).index("avgpool")])
        transforms = entry.transforms()
        preprocessing = {
            "input_size": (3, settings.image_size, settings.image_size),
            "interpolation": transforms.interpolation.value,
            "mean": tuple(transforms.mean),
            "std": tuple(transforms.std),
            **settings.normalisation,
        }
        with _explain_size_errors(settings):
            super().__init__(
                model, _make_squash_transform(preprocessing), settings, settings.describe(source, preprocessing), device
            )

    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        feature_map = self._trunk(pixels)
        return feature_map.mean((2, 3)), feature_map


@contextmanager
def _explain_size_errors(settings: NetworkSettings) -> Iterator[None]:
    """Raise a UserError that names the network and the image size where the block cannot process an image."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except BUILD_ERRORS as error:
        size = settings.image_size
        raise UserError(
            f"features.image_size: the network {settings.network} cannot process an image of {size}×{size} pixels "
            f"({summarise_error(error)}); choose another size"
        ) from None


def _make_squash_transform(preprocessing: Mapping[str, Any]) -> Callable[[Image.Image], Tensor]:
    from timm.data import create_transform

    return create_transform(**preprocessing, crop_pct=1.0, crop_mode="squash")


def build_torchvision_model(name: str, options: dict[str, Any]) -> nn.Module:
    """Build a network of torchvision without its weights; raises UserError for options that it does not take."""
    from torchvision import models

    options = check_options("torchvision", name, options)
    backbone = {"weights_backbone": None} if name.startswith("fasterrcnn_") else {}
    try:
        return models.get_model(name, weights=None, **backbone, **options)
    except BUILD_ERRORS as error:
        raise explain_build_error(name, options, error) from None


def _build_timm_model(name: str, weights: str, options: dict[str, Any]) -> tuple[nn.Module, dict[str, str]]:
    """Build the network and load its weights; return it with the source of the weights for the manifest.

    Raises UserError as TimmNetwork does.
    """
    import timm

    if name.split(".")[0] not in timm.list_models():
        raise UserError(f"features.network: timm has no network {name!r}; name one of timm.list_models()")
    options = check_options("timm", name, options)
    try:
        entry = timm.models.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise UserError(
            f"features.network: {summarise_error(error).rstrip('.')}; name one of timm.list_pretrained()"
        ) from None
    overlay: dict[str, Any] | None = None
    source: dict[str, str] = {}
    if weights == HUB:
        if entry is None or not entry.hf_hub_id:
            raise UserError(f"features.weights: hub has no weights for {name}; give a safetensors file")
        path, source = fetch_hub_file(entry.hf_hub_id, entry.hf_hub_filename or "model.safetensors", name)
        overlay = {"file": str(path), "custom_load": False}
    try:
        check_fit(lambda: timm.create_model(name, **options), weights, name)
        model = timm.create_model(name, pretrained=weights == HUB, pretrained_cfg_overlay=overlay, **options)
    except (UserError, torch.OutOfMemoryError):
        raise
    except BUILD_ERRORS as error:
        raise explain_build_error(name, options, error) from None
    return model, source or load_local(model, weights, name)


def _compute_timm_map(model: Any, pixels: Tensor, name: str) -> Tensor:
    """Return the last feature map (B, D, H, W).

    timm's output is this map, (B, H, W, D), or tokens (B, prefix + H·H, D). Raises UserError for any other output.
    """
    features = model.forward_features(pixels)
    if not isinstance(features, Tensor) or features.dim() not in (3, 4):
        raise UserError(f"features.network: {name} of timm does not end in one feature map; name another network")
    if features.dim() == 3:
        features = features[:, getattr(model, "num_prefix_tokens", 0) :]
        side = round(features.shape[1] ** 0.5)
        if side**2 != features.shape[1] or (side == 1 and not hasattr(model, "num_prefix_tokens")):
            raise UserError(
                f"features.network: {name} of timm ends in tokens that form no square map (number: "
                f"{features.shape[1]}); name another network"
            )
        return features.transpose(1, 2).unflatten(2, (side, side))
    if features.shape[1] != model.num_features and features.shape[3] == model.num_features:
        features = features.permute(0, 3, 1, 2)
    return features
