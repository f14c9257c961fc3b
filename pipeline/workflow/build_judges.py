"""Judges by name, from params.yaml and trained models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from pipeline.data.feature_store import FeatureStore
from pipeline.errors import UserError
from pipeline.evaluation.judges import Judge, ListenerJudge, TextJudge
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent

OWN, ADAPTED = "own", "adapted"  # judges that a method trains; all others are pretrained


def judges_of(
    chosen: Mapping[str, str], model: Path, root: Path, store: FeatureStore, device: torch.device
) -> dict[str, Judge]:
    """Judges by name, as `evaluate.judges` has them.

    own: the listener that was trained with the speaker in the folder `model`; adapted: the pretrained one after it got
    used to this speaker; any other word: the pretrained model of that name.
    """
    folders = {OWN: model, ADAPTED: model / "adapted"}
    places = {name: folders.get(which, root / "pretrained" / which) for name, which in chosen.items()}
    return {name: judge_in(folder, store, device) for name, folder in places.items()}


def judge_in(folder: Path, store: FeatureStore, device: torch.device) -> Judge:
    """The judge whose weights are in `folder`; UserError where what is there can judge nobody."""
    agent = load_agent(folder / "weights.safetensors", "listener")
    if isinstance(agent, Listener):
        return ListenerJudge(agent, lambda rows: torch.from_numpy(store.pooled(rows.numpy())), device)
    if isinstance(agent, DualEncoder):
        return TextJudge(agent, device)
    raise UserError(
        f"{folder}: a {type(agent).__name__} is no judge: it must have hear and look (evaluation/judges.py)"
    )
