"""Slices with agents of their own: packages outside the captioning core. The core's packages import no slice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from torch import nn

from pipeline.dialog.dialog_slice import DialogSlice
from pipeline.extension import Slice
from pipeline.models.agent_files import KINDS, load_agent
from pipeline.models.decoder import Decoder

SLICES: tuple[Slice, ...] = (DialogSlice(),)
AGENTS = KINDS | {kind.__name__: kind for slice_ in SLICES for kind in slice_.agents}


class AgentOwner(Protocol):
    """Part of a slice that handles the agents of the classes `handled_agents`."""

    handled_agents: tuple[type[nn.Module], ...]


Part = TypeVar("Part", bound=AgentOwner)


def find_owner(parts: Iterable[Part], agents: Iterable[nn.Module]) -> Part | None:
    """Return the part of a slice that owns one of the agents; None where all agents are the core's."""
    candidates = tuple(agents)
    return next((part for part in parts if any(isinstance(agent, part.handled_agents) for agent in candidates)), None)


def load_speaker(folder: Path) -> Decoder:
    """Load the trained speaker in `folder`; raises the errors of `load_agent`."""
    speaker = load_any_agent(folder / "weights.safetensors", "speaker")
    assert isinstance(speaker, Decoder)
    return speaker


def load_any_agent(path: Path, name: str) -> nn.Module:
    """Load the agent `name` of the core or of a slice from the weights in `path`; raises the errors of `load_agent`."""
    return load_agent(path, name, known=AGENTS)
