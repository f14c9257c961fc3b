"""A method of joint training, from its block in params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.composition.joint import Agents
from pipeline.composition.method import Method
from pipeline.composition.relaxed import relaxed
from pipeline.data.corpus import tokenise
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.metrics.cider import CiderD
from pipeline.metrics.texts import Texts
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent
from pipeline.workflow.build_data import cider
from pipeline.workflow.build_retriever import reward_models

if TYPE_CHECKING:
    import torch

    from pipeline.config.load import MethodSettings


def method_of(
    settings: MethodSettings, root: Path, prepared: Prepared, store: FeatureStore, device: torch.device
) -> tuple[Method, CiderD]:
    """A method of joint training, from the pretrained speaker and listener below `root`, and its CIDEr-D."""
    objective = settings.objective
    scorer = cider(prepared, objective.eos_in_reward, objective.document_frequencies)
    speaker = load_agent(root / "pretrained" / settings.speaker / "weights.safetensors", "speaker")
    listener = load_agent(root / "pretrained" / "listener" / "weights.safetensors", "listener")
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    agents = Agents(speaker, listener, scorer.to(device), texts(prepared))
    rewards = {"rewards": reward_models(root, prepared, device)} if settings.rewarded else {}
    composed = settings.composition(agents, objective, **rewards, **settings.arguments)
    if objective.control == "relax":
        composed = relaxed(composed)
    return replace(composed, gamma=settings.gamma), agents.cider


def texts(prepared: Prepared) -> Texts:
    """Metrics that read text, against all human captions, unclipped."""
    vocabulary = prepared.vocabulary

    def decode(tokens: Sequence[int]) -> str:
        said = vocabulary.decode(tokens)
        return " ".join(tokenise(said)) if vocabulary.reads_text else said

    return Texts(decode, lambda image: [" ".join(words) for words in prepared.words(image)])
