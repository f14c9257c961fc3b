"""Networks that see: what one must offer, and those of timm."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.features.torchvision_cpu import declare_operators
from pipeline.files import sha256

if TYPE_CHECKING:
    from PIL import Image


class Extractor(Protocol):
    """A network with its preprocessing: a grid of cells, detected regions, or tokens are all sets of regions."""

    pooled_size: int  # P
    regions_shape: tuple[int, int]  # (R, D): at most R regions of an image
    description: dict[str, Any]  # network, digest of its weights, preprocessing: what the manifest tells

    def prepare(self, image: Image.Image) -> Tensor:
        """An RGB image as the network wants it, (3, H, W); called in threads."""
        ...

    def __call__(self, images: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Pooled (B, P), regions (B, R, D), padded with 0, and how many of an image's regions exist (B,)."""
        ...


class TimmNetwork:
    """Any network of timm: the last feature map as regions, its mean over the map as the vector (Extractor).

    The preprocessing is timm's own for the network, but the whole image is squashed to its square: a caption speaks
    of the whole image, so nothing is cropped away.
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
        """`weights` is `hub` or a safetensors file; `mean` and `std` (RGB) replace the network's own.

        With `cells` the map is averaged to cells × cells. Raises UserError for an unknown name, an option that the
        network does not take, or weights that are missing or of another network.
        """
        declare_operators()
        import timm
        from timm.data import create_transform, resolve_data_config

        model, source = _model(timm, name, weights, dict(options))
        self.model = model.eval().to(device, memory_format=torch.channels_last)
        self.cells, self.device = cells, torch.device(device)
        given = {"mean": mean, "std": std, "input_size": (3, image_size, image_size)}
        config = resolve_data_config(
            {key: tuple(value) for key, value in given.items() if value is not None}, model=model
        )
        shown = {key: config[key] for key in ("input_size", "interpolation", "mean", "std")}
        self._transform = create_transform(**shown, crop_pct=1.0, crop_mode="squash")
        pooled, regions, _ = self([torch.zeros(3, image_size, image_size)])
        self.pooled_size, self.regions_shape = pooled.shape[1], (regions.shape[1], regions.shape[2])
        self.description: dict[str, Any] = {
            "network": name,
            "options": dict(options),
            "weights": source,
            "preprocessing": shown,
        }

    def prepare(self, image: Image.Image) -> Tensor:
        return self._transform(image)

    @torch.inference_mode()
    def __call__(self, images: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        pixels = torch.stack(list(images)).to(self.device, memory_format=torch.channels_last)
        regions = _last_map(self.model, pixels)
        pooled = regions.mean((2, 3))
        if self.cells is not None:
            regions = F.adaptive_avg_pool2d(regions, self.cells)
        regions = regions.flatten(2).transpose(1, 2)
        return pooled, regions, torch.full((len(pixels),), regions.shape[1])


def _last_map(model: nn.Module, pixels: Tensor) -> Tensor:
    """(B, D, H, W), whether the network ends in such a map, in (B, H, W, D), or in tokens (B, prefix + H·W, D)."""
    features = model.forward_features(pixels)
    if features.dim() == 3:
        features = features[:, getattr(model, "num_prefix_tokens", 0) :]
        side = round(features.shape[1] ** 0.5)
        return features.transpose(1, 2).unflatten(2, (side, side))
    if features.shape[1] != model.num_features and features.shape[3] == model.num_features:
        features = features.permute(0, 3, 1, 2)
    return features


def _model(timm: Any, name: str, weights: str, options: dict[str, Any]) -> tuple[nn.Module, dict[str, str]]:
    """The network with its weights, and where these are from."""
    if name not in timm.list_models() and name.split(".")[0] not in timm.list_models():
        raise UserError(f"features.network: timm has no network {name!r}; see timm.list_models()")
    try:
        if weights == "hub":
            model = timm.create_model(name, pretrained=True, **options)
            return model, {"source": "hub", "sha256": digest(model)}
        model = timm.create_model(name, pretrained=False, **options)
    except TypeError as error:
        raise UserError(f"features.options: the network {name} does not take them ({_short(error)})") from None
    except Exception as error:  # whatever the hub's client, its transport or its cache raise
        if weights != "hub":
            raise
        raise UserError(
            f"features.weights: hub has no weights for {name} that can be reached ({_short(error)}); put a safetensors "
            "file of them on this machine and give its path as features.weights"
        ) from None
    path = Path(weights)
    load_weights(model, path, name)
    return model, {"source": path.name, "sha256": sha256(path)}


def load_weights(model: nn.Module, path: Path, name: str) -> None:
    """Load a safetensors state dict, of whatever precision, strictly; UserError tells the first that does not fit."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        given = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: the weights of {name} are missing; put the safetensors file there") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a whole safetensors file ({_short(error)})") from None
    wanted = model.state_dict()
    for key in (*wanted, *given):
        have, want = (tuple(state[key].shape) if key in state else None for state in (given, wanted))
        if have != want:
            problem = "is missing" if have is None else f"has the shape {have}"
            problem += ", which the network does not have" if want is None else f", the network wants {want}"
            raise UserError(f"{path}, {key}: {problem}; these are not the weights of {name} with these options")
    model.load_state_dict({key: value.to(wanted[key].dtype) for key, value in given.items()})


def digest(model: nn.Module) -> str:
    """SHA-256 of the names and values of a network's weights."""
    hashed = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        hashed.update(key.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def _short(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]
