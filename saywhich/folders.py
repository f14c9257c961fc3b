"""Opening trained models; nothing in their folders is executed."""

from __future__ import annotations

from pathlib import Path

import torch

from pipeline.config.reading import read_mapping
from pipeline.data.tokens import load_vocabulary
from pipeline.errors import UserError
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent
from saywhich.eyes import Eyes
from saywhich.model import Model
from saywhich.places import MAIN, Place, place_of


def load(folder: Path) -> Model:
    """The model in a folder of either kind; UserError as `saywhich.load` says."""
    place = place_of(folder)
    speaker, listener = load_agent(place.weights, "speaker"), load_agent(place.weights, "listener")
    if not isinstance(speaker, Decoder) or not isinstance(listener, Listener):
        kinds = f"a {type(speaker).__name__} and a {type(listener).__name__}"
        raise UserError(
            f"{place.weights}: {kinds} talk about photos in dialogs; captions need a speaker and a Listener"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    eyes = Eyes.open(place.eyes, _named_weights(place), device, exported=place.root is None)
    return Model(speaker, listener, eyes, load_vocabulary(place.words), place, device)


def _named_weights(place: Place) -> str | None:
    """The file of the features network's weights that the repository's params.yaml names, if it does."""
    if place.root is None or not (place.root.parent / "params.yaml").is_file():
        return None
    features = read_mapping(place.root.parent / "params.yaml").get("features") or {}
    weights = (features.get(MAIN) or {}).get("weights")
    return str(place.root.parent / weights) if isinstance(weights, str) and weights != "hub" else None
