"""Construction of reward models, and their files in the folder `retriever`: image vectors, neighbours, two heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor

from pipeline.channels.hard import Beam
from pipeline.channels.search import ban_repeated_ngrams
from pipeline.composition.method import Method
from pipeline.composition.retrieval_rewards import RewardModels, build_head_pretraining
from pipeline.data.feature_store import FeatureStore
from pipeline.data.image_features import open_features
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.metrics.retrieval import find_nearest_images
from pipeline.models.agent_files import load_agent
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.decoder import Decoder
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.models.retriever import Retriever
from pipeline.protocols import Channel
from pipeline.runtime.checksums import check_checksums
from pipeline.runtime.files import compute_sha256, write_atomically

if TYPE_CHECKING:
    from pipeline.composition.reward_settings import RetrieverSettings

FOLDER, IMAGES, SETTINGS, WEIGHTS = "retriever", "images.safetensors", "settings.json", "weights.safetensors"
RERUN = "run the retriever stage again"


@dataclass(frozen=True)
class RewardInputs:
    """The settings and inputs that the reward models were made with."""

    # the keys are `retriever` and, if there is one, `judge`
    models: dict[str, str]  # the model's name in `pretrain`
    weights: dict[str, str]  # the SHA-256 of the model's weights
    features: dict[str, int]  # the checksum of the model's features
    temperature: float
    beam: int
    no_repeat: int | None
    learning_rate: float  # the discriminator's learning rate

    @property
    def search(self) -> Channel:
        """Return the channel of the searched captions."""
        return ban_repeated_ngrams(Beam(self.beam), self.no_repeat)


def list_reward_files(root: Path) -> list[Path]:
    """List the files that reward models are read from: their folder, and the weights of retriever and judge.

    Raises UserError where the folder is missing, damaged, or made without a retriever or by another version of the
    program. The weights of retriever and judge are not read here.
    """
    return [root / FOLDER, *(_locate_weights(root, name) for name in _read_inputs(root).models.values())]


def make_rewards(
    settings: RetrieverSettings,
    learning_rate: float,
    root: Path,
    prepared: PreparedData,
    embed_images: Callable[[Listener | DualEncoder, FeatureStore], Tensor],
    device: torch.device,
) -> tuple[Method, RewardModels, RewardInputs]:
    """Build the reward models that the settings name, with fresh heads, and the method that pretrains the heads.

    `learning_rate` is the discriminator's. `embed_images` returns the vectors of all images, as in evaluation.
    Raises UserError where weights or features are missing, or where a dual encoder would cut off human captions. Raises
    UserError, too, where a rank of `hard_negative_ranks` exceeds the number of other training images.
    """
    models = {"retriever": settings.model} | ({"judge": settings.judge} if settings.judge else {})
    encoders = {role: _load_encoder(root, name).to(device) for role, name in models.items()}
    stores = {role: open_features(root, encoder.features, prepared) for role, encoder in encoders.items()}
    inputs = RewardInputs(
        models,
        {role: compute_sha256(_locate_weights(root, name)) for role, name in models.items()},
        {role: store.manifest["crc"] for role, store in stores.items()},
        settings.temperature,
        settings.beam,
        settings.no_repeat_ngram_size,
        learning_rate,
    )
    retrievers = {}
    for role, encoder in encoders.items():
        if isinstance(encoder, DualEncoder):
            _check_lengths(encoder, prepared)
        vectors = embed_images(encoder, stores[role])
        retrievers[role] = Retriever(encoder, vectors, settings.temperature, prepared.vocabulary.decode)
    retriever, rows = retrievers["retriever"], torch.from_numpy(prepared.rows("train")).to(device)
    if settings.hard_negative_ranks:
        retriever.neighbours = find_nearest_images(retriever.vectors, rows, settings.hard_negative_ranks)
    size, hidden = retriever.vectors.shape[1], settings.hidden_dims
    heads = CaptionClassifier(size, hidden).to(device), CaptionClassifier(size, hidden, with_images=False).to(device)
    rewards = RewardModels(retriever, *heads, inputs.search, learning_rate, retrievers.get("judge"))
    speaker = load_agent(root / "pretrained" / settings.speaker / WEIGHTS, "speaker")
    assert isinstance(speaker, Decoder)
    return build_head_pretraining(rewards, speaker), rewards, inputs


def save_rewards(out: Path, rewards: RewardModels, inputs: RewardInputs) -> None:
    """Write the image vectors, neighbours and inputs. The heads' weights are the training's own output."""
    retriever = rewards.retriever
    tensors = {"vectors": retriever.vectors}
    if retriever.neighbours is not None:
        tensors["neighbours"] = retriever.neighbours
    if rewards.judge is not None:
        tensors["judge"] = rewards.judge.vectors
    write_atomically(out / IMAGES, serialise({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}))
    write_atomically(out / SETTINGS, json.dumps(vars(inputs), indent=1) + "\n")


def load_rewards(root: Path, prepared: PreparedData, device: torch.device) -> RewardModels:
    """Load the reward models below `root` onto `device`.

    Raises UserError as `list_reward_files` does, and where weights or features of the retriever or judge have changed.
    Raises UserError, too, where a head does not fit the retriever's vectors.
    """
    folder, inputs = root / FOLDER, _read_inputs(root)
    images: dict[str, Tensor] = {name: x.to(device) for name, x in load_file(folder / IMAGES).items()}
    encoders = {role: _load_matching_encoder(root, inputs, role, prepared).to(device) for role in inputs.models}
    vectors, options = images["vectors"], (inputs.temperature, prepared.vocabulary.decode)
    retriever = Retriever(encoders["retriever"], vectors, *options, images.get("neighbours"))
    judge = Retriever(encoders["judge"], images["judge"], *options) if "judge" in encoders else None
    heads: list[CaptionClassifier] = []
    for name in ("discriminator", "grammar"):
        head = load_agent(folder / WEIGHTS, name)
        assert isinstance(head, CaptionClassifier)
        if head.size != vectors.shape[1]:
            raise UserError(
                f"{folder}: the {name} takes vectors of size {head.size}, and the retriever's vectors have "
                f"size {vectors.shape[1]}; {RERUN}"
            )
        heads.append(head.to(device))
    return RewardModels(retriever, heads[0], heads[1], inputs.search, inputs.learning_rate, judge)


def _read_inputs(root: Path) -> RewardInputs:
    path = root / FOLDER / SETTINGS
    if not path.parent.is_dir():
        raise UserError(f"{path}: there are no reward models; run the retriever stage")
    check_checksums(path.parent, RERUN, required=True)
    stored: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8"))
    if stored is None:
        raise UserError(
            f"{path}: made without a retriever; add the section retriever to params.yaml and run its stage again"
        )
    try:
        return RewardInputs(**stored)
    except TypeError:  # other keys
        raise UserError(f"{path}: made by another version of this program; {RERUN}") from None


def _locate_weights(root: Path, model: str) -> Path:
    return root / "pretrained" / model / WEIGHTS


def _load_matching_encoder(
    root: Path, inputs: RewardInputs, role: str, prepared: PreparedData
) -> Listener | DualEncoder:
    """Return the encoder of a role. Raises UserError where its weights or features have changed."""
    folder, name = root / FOLDER, inputs.models[role]
    encoder = _load_encoder(root, name)
    store = open_features(root, encoder.features, prepared)
    if inputs.features[role] != store.manifest["crc"]:
        raise UserError(f"{folder}: its image vectors come from other features than {store.path}; {RERUN}")
    if inputs.weights[role] != compute_sha256(_locate_weights(root, name)):
        raise UserError(f"{folder}: made with other weights of {name}; {RERUN}")
    return encoder


def _load_encoder(root: Path, model: str) -> Listener | DualEncoder:
    encoder = load_agent(_locate_weights(root, model), "listener")
    assert isinstance(encoder, Listener | DualEncoder)
    return encoder


def _check_lengths(encoder: DualEncoder, prepared: PreparedData) -> None:
    """Raise UserError for a text encoder that would cut off a human caption."""
    decode = prepared.vocabulary.decode
    # the 1000 longest by characters
    texts = sorted({decode(row) for row in prepared.tokens.tolist()}, key=len, reverse=True)[:1000]
    longest, index = encoder.count_tokens(texts).max(0)
    if longest > encoder.max_tokens:
        raise UserError(
            f"{prepared.folder}: a caption has {longest} tokens, and the text encoder takes {encoder.max_tokens}: "
            f"“{texts[index][:80]}”; lower prepare.max_words"
        )
