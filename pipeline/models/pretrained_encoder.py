"""A judge that was trained elsewhere, for features from the image tower of the same network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from pipeline.errors import UserError
from pipeline.section import Name, Section, Text

if TYPE_CHECKING:
    import torch

    from pipeline.data.feature_store import FeatureStore
    from pipeline.models.dual_encoder import DualEncoder


class PretrainedJudgeSettings(Section):
    """A judge that was trained elsewhere: a network of open_clip, and the features that the same network extracted."""

    features: Name
    network: Text
    weights: Text
    options: dict[str, Any] = Field(default_factory=dict)

    def _check(self) -> None:
        if not self.network.startswith("open_clip/"):
            raise ValueError(f"network = {self.network}: expected open_clip/NETWORK.WEIGHTS, by open_clip's names")


def load_pretrained_encoder(
    settings: PretrainedJudgeSettings, store: FeatureStore, device: torch.device
) -> DualEncoder:
    """Load the text tower of the network that the settings name.

    Raises UserError where the features in `store` are not from that network's own image tower.
    """
    from pipeline.features.clip import ClipNetwork
    from pipeline.features.extractor import NetworkSettings
    from pipeline.models.dual_encoder import DualEncoder

    network, seen = settings.network, store.manifest["network"]
    if network != seen:
        raise UserError(f"features.{settings.features}.network: {seen}, but who looks at them is of {network}")
    if store.manifest.get("vector"):
        raise UserError(f"features.{settings.features}.vector: must be null, the network's own, for who reads with it")
    size = store.manifest["preprocessing"]["size"]
    height = size if isinstance(size, int) else size[0]
    whole = ClipNetwork(NetworkSettings(network, height, settings.weights, settings.options), device)
    encoder = DualEncoder(whole.architecture, whole.options, settings.features)
    text = {name: value for name, value in whole.model.state_dict().items() if not name.startswith("visual.")}
    encoder.text.load_state_dict(text)
    return encoder.eval()
