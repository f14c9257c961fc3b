"""The vision tower of a CLIP or SigLIP from transformers, and the choice among all towers from transformers.

The text tower is in pipeline/models/hub_dual_encoder.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError
from pipeline.features.decoder_inputs import DecoderInputsNetwork
from pipeline.features.extractor import GridNetwork, NetworkSettings
from pipeline.features.hub_tower import PREFIX, HubNetwork, compute_weights_digest
from pipeline.features.network_weights import HUB
from pipeline.runtime.files import write_atomically
from pipeline.runtime.hub_loading import (
    DUAL_ENCODERS,
    explain_load_errors,
    load_captioner,
    load_dual_encoder,
    load_pretrained,
    read_processor,
)
from pipeline.runtime.hub_prompts import PROMPTED


class HubDualNetwork(GridNetwork):
    """A dual encoder's vision tower as an `Extractor`: the vector is the image embedding.

    The regions are the last hidden states of the patches. The embedding lies in the space shared with captions and is
    not normalised. The model's own processor prepares images.
    """

    memory_format = torch.preserve_format

    def __init__(self, settings: NetworkSettings, device: torch.device | str = "cpu"):
        """Build the tower of the model hub/NAME, from the hub or from a folder.

        Raises UserError for settings that the model and its processor determine, and for a model that takes images of
        several sizes. Raises UserError, too, for a processor whose images have another size than the model takes, and
        as `load_dual_encoder` does.
        """
        name = settings.network.removeprefix(PREFIX)
        model = load_dual_encoder(name)
        vision_config = model.config.vision_config
        if model.config.model_type == "siglip2":
            raise UserError(f"features.network: {name} takes images of several sizes; give a model of one size")
        size, unsupported = vision_config.image_size, (settings.options, settings.normalisation, settings.grid_size)
        if settings.weights != HUB or any(unsupported) or settings.image_size not in (0, size):
            raise UserError(
                f"features.network: {settings.network} takes weights: hub, options: {{}}, image_size, mean, std and "
                "grid_size: null; set these values"
            )
        processor = load_pretrained("AutoImageProcessor", name)
        self._patches = (size // vision_config.patch_size) ** 2

        def transform(image: Image.Image) -> Tensor:
            with explain_load_errors(f"features.network: {name}: its processor does not prepare an image"):
                pixels: Tensor = processor(image, return_tensors="pt")["pixel_values"][0]
                return pixels

        if (shape := tuple(transform(Image.new("RGB", (size, size))).shape)) != (3, size, size):
            raise UserError(
                f"features.network: {name}: expected a processor that gives images (3, {size}, {size}), found "
                f"{shape}; take the model from its publisher"
            )
        source = {"source": name, "sha256": compute_weights_digest(model)}
        model.text_model = torch.nn.Identity()
        super().__init__(
            model, transform, replace(settings, image_size=size), settings.describe(source, {"size": size}), device
        )

    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Any = self.model.get_image_features(pixel_values=pixels)
        patches = outputs.last_hidden_state[:, -self._patches :]  # without CLIP's class token
        return outputs.pooler_output, patches.transpose(1, 2).unsqueeze(-1)


def open_hub_tower(settings: NetworkSettings, device: torch.device | str = "cpu") -> GridNetwork:
    """Build the vision tower, or the layers before the text decoder, of the captioner or dual encoder hub/NAME.

    Raises UserError for a model that cannot be loaded, and for settings that it does not take.
    """
    kind = load_pretrained("AutoConfig", settings.network.removeprefix(PREFIX)).model_type
    if kind in DUAL_ENCODERS:
        return HubDualNetwork(settings, device)
    return (DecoderInputsNetwork if kind in PROMPTED else HubNetwork)(settings, device)


def save_hub_model(name: str, folder: Path) -> list[Path]:
    """Write the captioner or dual encoder `name` with its processor into `folder`, and return the files.

    The model in that folder has the same features as `name`. Weights that `name` lacks, such as those of a pooler, are
    not written.
    """
    kind = load_pretrained("AutoConfig", name).model_type
    model = load_dual_encoder(name) if kind in DUAL_ENCODERS else load_captioner(name)
    has_pooler = kind in DUAL_ENCODERS or model.has_pooler
    model.save_pretrained(
        folder,
        state_dict={key: value for key, value in model.state_dict().items() if has_pooler or "pooler" not in key},
    )
    if kind in DUAL_ENCODERS or kind in PROMPTED:
        load_pretrained("AutoProcessor", name).save_pretrained(folder)
    else:
        write_atomically(folder / "preprocessor_config.json", read_processor(name).model_dump_json())
    return sorted(path for path in folder.rglob("*") if path.is_file())
