"""Loading of trained models; no code in their folders is executed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pipeline.config.reading import read_mapping
from pipeline.data.tokenizer_vocabulary import load_vocabulary
from pipeline.errors import UserError
from pipeline.features.network_weights import HUB
from pipeline.models.agent_files import load_agent
from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder
from pipeline.models.guided import GuidedDecoder
from pipeline.models.hub_captioner import HubDecoder
from pipeline.models.listener import Listener
from pipeline.models.lstm import PooledLstm
from pipeline.models.transformer import Transformer
from pipeline.vocabulary import Vocabulary
from saywhich.feature_extractor import FeatureExtractor
from saywhich.model import Model
from saywhich.model_files import MAIN, ModelFiles, locate_model

# agents that caption or retrieve photos; the agents of slices are not among them
CAPTIONERS = tuple(kind.__name__ for kind in (Att2in, Transformer, PooledLstm, HubDecoder, GuidedDecoder))
LISTENERS = (Listener.__name__,)


def load_model(folder: Path) -> Model:
    """Load the model in `folder`, of a repository or of `saywhich export`; raises UserError as `saywhich.load` does."""
    files = locate_model(folder)
    speaker = load_agent(files.weights, "speaker", CAPTIONERS)
    listener = load_agent(files.weights, "listener", LISTENERS)
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    extractor = FeatureExtractor.open(
        files.feature_extractor, _find_named_weights(files), device, exported=files.root is None
    )
    vocabulary = load_vocabulary(files.vocabulary)
    _check_sizes(files, speaker, listener, extractor, vocabulary)
    return Model(speaker, listener, extractor, vocabulary, files, device)


def _check_sizes(
    files: ModelFiles, speaker: Decoder, listener: Listener, extractor: FeatureExtractor, vocabulary: Vocabulary
) -> None:
    """Raise UserError where the sizes of speaker, listener, feature extractor and vocabulary do not match."""
    decoder = speaker.inner if isinstance(speaker, GuidedDecoder) else speaker
    region_size = decoder.region_size if isinstance(decoder, HubDecoder) else decoder.region.in_features
    # a listener of other features encodes no photo here (`Model.require_listener`)
    pooled_size = extractor.network.pooled_size if listener.features == MAIN else listener.image.in_features
    for subject, size, unit, expected in (
        ("the speaker's vocabulary has", speaker.vocabulary, "words", len(vocabulary)),
        ("the listener's vocabulary has", listener.vocabulary, "words", len(vocabulary)),
        ("the speaker's regions have", region_size, "numbers", extractor.regions_size),
        ("the listener's images have", listener.image.in_features, "numbers", pooled_size),
    ):
        if size != expected:
            raise UserError(
                f"{files.weights}: {subject} {size} {unit}, and the files beside it have {expected}; train the model "
                "again, or export it again"
            )


def _find_named_weights(files: ModelFiles) -> str | None:
    """Return the path of the feature network's weights if the repository's params.yaml names one, else None."""
    if files.root is None or not (files.root.parent / "params.yaml").is_file():
        return None
    value: Any = read_mapping(files.root.parent / "params.yaml")
    for key in ("features", MAIN, "weights"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return str(files.root.parent / value) if isinstance(value, str) and value != HUB else None
