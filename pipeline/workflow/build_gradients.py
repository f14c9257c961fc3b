"""The gradient world of a run: its pretrained agents and a batch of its images."""

from __future__ import annotations

from pathlib import Path

from pipeline.config.load import load
from pipeline.data.batches import sequential_batches
from pipeline.data.image_features import load_data
from pipeline.gradients.gradient_world import GradientWorld
from pipeline.models.agent_files import load_agent
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener

IMAGES = 32


def trained_world(root: Path) -> tuple[GradientWorld, str, float]:
    """Return the pretrained agents below `root` without dropout and the first validation images, as a `GradientWorld`.

    Also return the data set's name, and the margin of the run's hinge.
    """
    prepared, store = load_data(root)
    speaker, listener = (
        load_agent(root / "pretrained" / role / "weights.safetensors", role) for role in ("speaker", "listener")
    )
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    listener.requires_grad_(False)
    batch = next(sequential_batches(prepared, store, prepared.rows("val")[:IMAGES], IMAGES))
    margin = load(root.parent / "params.yaml").train.objective.margin
    return GradientWorld(speaker.requires_grad_(True), listener, batch), prepared.manifest["dataset"], margin
