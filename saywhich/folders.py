"""Opening trained models; nothing in their folders is executed."""

from __future__ import annotations

from pathlib import Path

import torch

from pipeline.config.reading import read_mapping
from pipeline.data.tokens import load_vocabulary
from pipeline.errors import UserError
from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder
from pipeline.models.guided import Guided
from pipeline.models.hub import Hub
from pipeline.models.listener import Listener
from pipeline.models.lstm import PooledLstm
from pipeline.models.transformer import Transformer
from pipeline.models.weights import AGAIN, load_agent
from pipeline.vocabulary import Vocabulary
from saywhich.eyes import Eyes
from saywhich.model import Model
from saywhich.places import MAIN, Place, place_of

# agents that caption photos and find them; those of dialogs are asked about one
CAPTIONERS = tuple(kind.__name__ for kind in (Att2in, Transformer, PooledLstm, Hub, Guided))
LISTENERS = (Listener.__name__,)


def load(folder: Path) -> Model:
    """The model in a folder of either kind; UserError as `saywhich.load` says."""
    place = place_of(folder)
    speaker = load_agent(place.weights, "speaker", CAPTIONERS)
    listener = load_agent(place.weights, "listener", LISTENERS)
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    eyes = Eyes.open(place.eyes, _named_weights(place), device, exported=place.root is None)
    vocabulary = load_vocabulary(place.words)
    _check_sizes(place, speaker, listener, eyes, vocabulary)
    return Model(speaker, listener, eyes, vocabulary, place, device)


def _check_sizes(place: Place, speaker: Decoder, listener: Listener, eyes: Eyes, vocabulary: Vocabulary) -> None:
    """Raise UserError where the parts of a model are not of one model."""
    decoder = speaker.inner if isinstance(speaker, Guided) else speaker
    attended = decoder.region_size if isinstance(decoder, Hub) else decoder.region.in_features
    for what, found, wanted in (
        ("the speaker's vocabulary has so many words", speaker.vocabulary, len(vocabulary)),
        ("the listener's vocabulary has so many words", listener.vocabulary, len(vocabulary)),
        ("the speaker's regions have so many numbers", attended, eyes.regions_size),
        ("the listener's images have so many numbers", listener.image.in_features, eyes.network.pooled_size),
    ):
        if found != wanted:
            raise UserError(
                f"{place.weights}: {what}: {found}, and {wanted} are needed by the files beside it; {AGAIN}"
            )


def _named_weights(place: Place) -> str | None:
    """The file of the features network's weights that the repository's params.yaml names, if it does."""
    if place.root is None or not (place.root.parent / "params.yaml").is_file():
        return None
    features = read_mapping(place.root.parent / "params.yaml").get("features") or {}
    weights = (features.get(MAIN) or {}).get("weights")
    return str(place.root.parent / weights) if isinstance(weights, str) and weights != "hub" else None
