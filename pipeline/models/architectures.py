"""Architectures of speakers that are trained from scratch, by their names in params.yaml.

The schema of params.yaml imports this module, so networks are imported only when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from pipeline.ranges import Size, SmallCount

if TYPE_CHECKING:
    from pipeline.models.decoder import Decoder


@dataclass(frozen=True)
class SizeKey:
    """Key of params.yaml for a size of a network."""

    argument: str  # argument of the network's constructor
    values: Any  # type of the values


SIZES = {
    "word_dim": SizeKey("words", Size),
    "hidden_dim": SizeKey("hidden", Size),
    "attention_dim": SizeKey("attention", Size),
    "encoder_layers": SizeKey("encoder_layers", Annotated[int, Ge(0), Le(1_000)]),
    "layers": SizeKey("layers", SmallCount),
    "heads": SizeKey("heads", SmallCount),
}


@dataclass(frozen=True)
class Architecture:
    """Architecture of a speaker: its class, and the sizes that params.yaml sets."""

    module: str
    kind: str  # class in `module`
    sizes: tuple[str, ...]  # keys of SIZES that the architecture takes

    def load(self) -> type[Decoder]:
        """Import and return the speaker's class."""
        kind: type[Decoder] = getattr(import_module(self.module), self.kind)
        return kind

    def select_arguments(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments for the sizes of a section of params.yaml."""
        return {SIZES[key].argument: section[key] for key in self.sizes}


ARCHITECTURES = {
    "att2in": Architecture("pipeline.models.att2in", "Att2in", ("hidden_dim", "word_dim", "attention_dim")),
    "lstm": Architecture("pipeline.models.lstm", "PooledLstm", ("hidden_dim", "word_dim")),
    "transformer": Architecture(
        "pipeline.models.transformer", "Transformer", ("hidden_dim", "encoder_layers", "layers", "heads")
    ),
}
