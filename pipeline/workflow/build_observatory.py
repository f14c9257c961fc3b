"""The world of a trained speaker: the pretrained agents of a run, and a batch of its images."""

from __future__ import annotations

from pathlib import Path

from pipeline.config.load import load
from pipeline.data.batches import everything
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent
from pipeline.observatory.world import World
from pipeline.workflow.build_data import data

IMAGES = 32


def trained_world(root: Path) -> tuple[World, str, float]:
    """What joint training of the run below `root` begins with, without dropout, and the first images of validation.

    Also the data set's name, and the margin of the run's hinge.
    """
    prepared, store = data(root)
    speaker, listener = (
        load_agent(root / "pretrained" / role / "weights.safetensors", role) for role in ("speaker", "listener")
    )
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    listener.requires_grad_(False)
    batch = next(everything(prepared, store, prepared.rows("val")[:IMAGES], IMAGES))
    margin = load(root.parent / "params.yaml").train.objective.margin
    return World(speaker.requires_grad_(True), listener, batch), prepared.manifest["dataset"], margin
