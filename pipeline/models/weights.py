"""Trained agents on disk: safetensors that say how to build the models they belong to; nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from pipeline.errors import UserError
from pipeline.models.answering import Answering
from pipeline.models.att2in import Att2in
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.critic import Controls, Critic
from pipeline.models.decoder import Decoder
from pipeline.models.dialog_encoders import ENCODERS, Encoder
from pipeline.models.discriminator import Discriminator
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.guided import Guided
from pipeline.models.hub import Hub
from pipeline.models.listener import Listener
from pipeline.models.lstm import Lstm
from pipeline.models.transformer import Transformer
from pipeline.runtime.files import write_atomically

Agent = Decoder | Listener | DualEncoder | Critic | Controls | Encoder | Discriminator | CaptionClassifier
SPEAKERS: tuple[type[Agent], ...] = (Att2in, Transformer, Lstm, Hub, Guided, Answering)
OTHERS: tuple[type[Agent], ...] = (
    Listener,
    DualEncoder,
    Discriminator,
    CaptionClassifier,
    Critic,
    Controls,
    *ENCODERS.values(),
)
KINDS: dict[str, Callable[..., Agent]] = {kind.__name__: kind for kind in (*SPEAKERS, *OTHERS)}


def save_agents(path: Path, agents: Mapping[str, Agent]) -> None:
    """Write `agents` by name, parameters and the arguments they were built with; the file is whole or absent."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    for prefix, agent in agents.items():
        for name, value in agent.state_dict().items():
            tensors[f"{prefix}.{name}"] = value.detach().cpu().contiguous()
    built = {name: {"kind": type(agent).__name__, "arguments": agent.arguments} for name, agent in agents.items()}
    write_atomically(path, save(tensors, metadata={"agents": json.dumps(built)}))


def load_agent(path: Path, name: str) -> Agent:
    """The agent that `save_agents` wrote as `name`, on the CPU, in evaluation mode."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            built: dict[str, Any] = json.loads((file.metadata() or {}).get("agents", "{}"))
            tensors = {k: file.get_tensor(k) for k in file.keys() if k.startswith(f"{name}.")}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: no such weights; run the stage that trains them first") from None
    except (SafetensorError, OSError) as problem:
        raise UserError(f"{path}: not a whole safetensors file ({problem}); run its stage again") from None
    if name not in built:
        raise UserError(f"{path}: holds no {name}, only {', '.join(built) or 'foreign tensors'}; run its stage again")
    agent = _build(built[name])
    try:
        agent.load_state_dict({key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items()})
    except RuntimeError as problem:
        detail = " ".join(str(problem).split())[:200]
        raise UserError(f"{path}: {name} is of another version of this model ({detail}); run its stage again") from None
    return agent.eval()


def _build(made: Mapping[str, Any]) -> Agent:
    """An agent of its kind and arguments, of which one may be an agent in its turn."""
    arguments = {name: _build(value) if _is_agent(value) else value for name, value in made["arguments"].items()}
    return KINDS[made["kind"]](**arguments)


def _is_agent(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"kind", "arguments"}
