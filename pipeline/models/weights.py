"""Trained agents on disk: safetensors that say how to build the models they belong to; nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import re
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
from pipeline.models.lstm import Lstm, PooledLstm
from pipeline.models.transformer import Transformer
from pipeline.runtime.files import sha256, write_atomically
from pipeline.runtime.seal import HISTORY, LONGEST, NONE, check_history

Agent = Decoder | Listener | DualEncoder | Critic | Controls | Encoder | Discriminator | CaptionClassifier
SPEAKERS: tuple[type[Agent], ...] = (Att2in, Transformer, PooledLstm, Lstm, Hub, Guided, Answering)
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


def save_agents(path: Path, agents: Mapping[str, Agent], history: Path | None = None) -> None:
    """Write `agents` by name, parameters and the arguments they were built with; the file is whole or absent.

    `history`: the record of their training, a file of this name beside `path` that is to stay what it is.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    for prefix, agent in agents.items():
        for name, value in agent.state_dict().items():
            tensors[f"{prefix}.{name}"] = value.detach().cpu().contiguous()
    built = {name: {"kind": type(agent).__name__, "arguments": agent.arguments} for name, agent in agents.items()}
    said = {"sha256": NONE} if history is None else {"sha256": NONE, HISTORY: [history.name, sha256(history)]}
    content = save(tensors, metadata={"agents": json.dumps({**said, **built})})  # one entry: their order varies
    write_atomically(path, content.replace(NONE.encode(), hashlib.sha256(content).hexdigest().encode(), 1))


def load_agent(path: Path, name: str) -> Agent:
    """The agent that `save_agents` wrote as `name`, on the CPU, in evaluation mode.

    UserError where the file is not what was written, or the history beside it is of another training.
    """
    from safetensors import SafetensorError, safe_open

    try:
        _check_bytes(path)
        with safe_open(path, "pt") as file:
            built: dict[str, Any] = json.loads((file.metadata() or {}).get("agents", "{}"))
            tensors = {k: file.get_tensor(k) for k in file.keys() if k.startswith(f"{name}.")}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: no such weights; run the stage that trains them first") from None
    except (SafetensorError, OSError, ValueError) as problem:
        if isinstance(problem, UserError):
            raise
        raise UserError(f"{path}: not a whole safetensors file ({problem}); run its stage again") from None
    if name not in built:
        there = ", ".join(key for key in built if key not in ("sha256", HISTORY))
        raise UserError(f"{path}: holds no {name}, only {there or 'foreign tensors'}; run its stage again")
    check_history(path)
    if broken := [key for key, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise UserError(f"{path}: {broken[0]} is not a number, or infinite: its training diverged; train it again")
    try:
        agent = _build(built[name])
        agent.load_state_dict({key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items()})
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None
    except (RuntimeError, TypeError, KeyError, AttributeError, ValueError) as problem:
        detail = " ".join(str(problem).split())[:200]
        raise UserError(f"{path}: {name} is of another version of this model ({detail}); run its stage again") from None
    return agent.eval()


def _check_bytes(path: Path) -> None:
    """Compare the file's SHA-256 with the one in its header, which was written as zeros for it."""
    with open(path, "rb") as file:
        head = file.read(8)
        head += file.read(min(int.from_bytes(head, "little"), LONGEST))
        said = re.search(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"', head)
        found = hashlib.sha256(head.replace(said[1], NONE.encode(), 1) if said else head)
        while part := file.read(1 << 20):
            found.update(part)
    if said is None or found.hexdigest().encode() != said[1]:
        raise UserError(
            f"{path}: not a whole safetensors file of ours: its bytes are not those that were written; run "
            "its stage again"
        )


def _build(made: Mapping[str, Any]) -> Agent:
    """An agent of its kind and arguments, of which one may be an agent in its turn."""
    arguments = {name: _build(value) if _is_agent(value) else value for name, value in made["arguments"].items()}
    return KINDS[made["kind"]](**arguments)


def _is_agent(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"kind", "arguments"}
