"""The vision tower of a transformers captioner; the text side is a speaker (pipeline/models/hub_captioner.py)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError, summarise_error
from pipeline.features.extractor import GridNetwork, NetworkSettings
from pipeline.features.network_weights import HUB
from pipeline.runtime.hub_loading import load_captioner, read_processor

if TYPE_CHECKING:
    from PIL import Image

PREFIX = "hub/"
TOWERS = {"blip": "vision_model", "git": "git.image_encoder", "vision-encoder-decoder": "encoder"}


class HubNetwork(GridNetwork):
    """A captioner's vision tower as an `Extractor`: its regions are the last hidden states.

    A class token is one of the regions. The vector is the tower's pooled output, or the mean of the regions where the
    tower has no trained pooler. Images are squashed to a square. Its side, the mean and the deviation are the
    processor's, unless the settings have others.
    """

    memory_format = torch.preserve_format

    def __init__(self, settings: NetworkSettings, device: torch.device | str = "cpu"):
        """Build the tower of the model hub/NAME, from the hub or from a folder.

        Raises UserError for another kind of model, a tower with random outputs, or settings that do not apply. Raises
        UserError, too, for an image size that the tower does not take.
        """
        name = settings.network.removeprefix(PREFIX)
        if settings.weights != HUB or settings.options or settings.grid_size is not None:
            raise UserError(
                f"features.network: {settings.network} takes weights: hub, options: {{}} and grid_size: null; set "
                "these values"
            )
        captioner = load_captioner(name)
        tower = captioner.get_submodule(TOWERS[captioner.config.model_type])
        if tower.config.model_type == "vit_mae":
            raise UserError(
                f"features.network: {name} has a ViT-MAE encoder, which drops random patches of each image; name a "
                "captioner with another encoder"
            )
        processor = read_processor(name)
        size = settings.image_size or processor.side
        normalisation = {
            "mean": tuple(processor.image_mean),
            "std": tuple(processor.image_std),
            **settings.normalisation,
        }
        preprocessing = {"input_size": (3, size, size), "interpolation": processor.resample, **normalisation}
        mean, std = (torch.tensor(normalisation[key]).view(3, 1, 1) for key in ("mean", "std"))

        def transform(image: Image.Image) -> Tensor:
            squashed = np.asarray(image.resize((size, size), processor.resample))
            return (torch.from_numpy(squashed.copy()).permute(2, 0, 1) / 255 - mean) / std

        self._has_pooler = captioner.has_pooler
        source = {"source": name, "sha256": compute_weights_digest(tower, pooler=captioner.has_pooler)}
        settings = replace(settings, image_size=size)
        try:
            super().__init__(tower, transform, settings, settings.describe(source, preprocessing), device)
        except torch.OutOfMemoryError:
            raise  # a RuntimeError that does not mean an invalid size
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"features.image_size: {name} does not take {size} pixels ({summarise_error(error)}); choose another "
                "size"
            ) from None

    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Any = self.model(pixel_values=pixels)
        pooled, regions = getattr(outputs, "pooler_output", None), outputs.last_hidden_state
        if pooled is None or not self._has_pooler:
            pooled = regions.mean(1)
        return pooled.flatten(1), regions.transpose(1, 2).unsqueeze(-1)


def compute_weights_digest(tower: torch.nn.Module, pooler: bool = True) -> str:
    """Return the SHA-256 of all weights, in the order of their names.

    Without `pooler` the pooler's weights are left out: the weights of an untrained pooler are random.
    """
    digest = hashlib.sha256()
    for name, value in sorted(tower.state_dict().items()):
        if pooler or "pooler" not in name:
            digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()
