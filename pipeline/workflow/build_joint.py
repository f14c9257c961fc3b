"""A method of joint training, from its block in params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

from pipeline.composition.joint import Agents
from pipeline.composition.method import Method
from pipeline.composition.relax_controls import with_relax
from pipeline.data.corpus import tokenise
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.metrics.cider import CiderD
from pipeline.metrics.text_rewards import TextScorer
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.workflow.build_data import cider
from pipeline.workflow.build_retriever import reward_models
from pipeline.workflow.slice_training import TRAINING
from pipeline.workflow.slices import find_owner, load_any_agent

if TYPE_CHECKING:
    import torch

    from pipeline.config.load import MethodSettings


def build_method(
    settings: MethodSettings, root: Path, prepared: Prepared, device: torch.device
) -> tuple[Method, CiderD | None]:
    """Build a method of joint training from the pretrained agents below `root`, and the CIDEr-D of captions.

    Raises UserError where the method takes other agents than the pretrained ones.
    """
    objective = settings.objective
    speaker = load_any_agent(root / "pretrained" / settings.speaker / "weights.safetensors", "speaker")
    listener = load_any_agent(root / "pretrained" / "listener" / "weights.safetensors", "listener")
    agents: object
    scorer = None
    if found := find_owner(TRAINING, (speaker, listener)):
        agents = found.pair_agents(speaker, listener)
    else:
        assert isinstance(speaker, Decoder)
        assert isinstance(listener, Listener)
        scorer = cider(prepared, objective.eos_in_reward, objective.document_frequencies).to(device)
        agents = Agents(speaker, listener, scorer, text_scorer(prepared))
    wanted = get_type_hints(settings.composition)["agents"]
    if not isinstance(agents, wanted):
        raise UserError(
            f"{settings.composition.__name__}: expected {wanted.__name__}, found {type(agents).__name__}: "
            "choose another method, or another pretrain.listener in params.yaml"
        )
    rewards = {"rewards": reward_models(root, prepared, device)} if settings.rewarded else {}
    composed = settings.composition(agents, objective, **rewards, **settings.arguments)
    if objective.control_variate == "relax":
        composed = with_relax(composed)
    return replace(composed, gamma=settings.gamma), scorer


def text_scorer(prepared: Prepared) -> TextScorer:
    """Return metrics that score text against all human captions, unclipped."""
    vocabulary = prepared.vocabulary

    def decode(tokens: Sequence[int]) -> str:
        said = vocabulary.decode(tokens)
        return " ".join(tokenise(said)) if vocabulary.reads_text else said

    return TextScorer(decode, lambda image: [" ".join(words) for words in prepared.words(image)])
