"""The slices: packages beside the captioning core with agents of their own. The core's packages import none of them."""

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
AGENTS = KINDS | {kind.__name__: kind for each in SLICES for kind in each.agents}


class AgentOwner(Protocol):
    """A part of a slice that serves the agents of the classes `owned`."""

    owned: tuple[type[nn.Module], ...]


Part = TypeVar("Part", bound=AgentOwner)


def find_owner(parts: Iterable[Part], agents: Iterable[nn.Module]) -> Part | None:
    """Return the part of a slice that one of the agents belongs to; None: the core's."""
    listed = tuple(agents)
    return next((part for part in parts if any(isinstance(agent, part.owned) for agent in listed)), None)


def load_speaker(folder: Path) -> Decoder:
    """Return the trained speaker in `folder`."""
    speaker = load_any_agent(folder / "weights.safetensors", "speaker")
    assert isinstance(speaker, Decoder)
    return speaker


def load_any_agent(path: Path, name: str) -> nn.Module:
    """Load an agent of the core or of a slice (`load_agent`)."""
    return load_agent(path, name, known=AGENTS)
