"""Loading of a judge or retriever that was trained elsewhere, for features from the image tower of the same network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pipeline.data.feature_store import FeatureStore
from pipeline.errors import UserError
from pipeline.features.clip import ClipNetwork
from pipeline.features.extractor import NetworkSettings
from pipeline.features.hub_tower import PREFIX
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.hub_dual_encoder import HubDualEncoder
from pipeline.runtime.hub_loading import load_dual_encoder

if TYPE_CHECKING:
    from pipeline.models.model_settings import PretrainedJudgeSettings


def load_pretrained_encoder(
    settings: PretrainedJudgeSettings, store: FeatureStore, device: torch.device
) -> DualEncoder:
    """Load the text tower of the network that the settings name.

    Raises UserError where the features in `store` are not the image vectors of that network, unchanged. Raises
    UserError, too, where the network cannot be loaded.
    """
    network, extracted_by = settings.network, store.manifest["network"]
    if network != extracted_by:
        raise UserError(
            f"features.{settings.features}.network: expected {network}, as its text tower needs, got {extracted_by}; "
            "set the expected network and run the features stage again"
        )
    if store.manifest.get("vector"):
        raise UserError(
            f"features.{settings.features}.vector: expected null, as the text tower of {network} needs, got "
            f"{store.manifest['vector']}; set null and run the features stage again"
        )
    if network.startswith(PREFIX):
        name = network.removeprefix(PREFIX)
        return HubDualEncoder.from_model(name, load_dual_encoder(name), settings.features).eval()
    size = store.manifest["preprocessing"]["size"]
    height = size if isinstance(size, int) else size[0]
    clip = ClipNetwork(NetworkSettings(network, height, settings.weights, settings.options), device)
    encoder = DualEncoder(clip.architecture, clip.options, settings.features)
    text_weights = {name: value for name, value in clip.model.state_dict().items() if not name.startswith("visual.")}
    encoder.text.load_state_dict(text_weights)
    return encoder.eval()
