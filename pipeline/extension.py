"""Extension points of the workflow, at which a slice adds parts to the captioning core or replaces parts of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from pipeline.composition.method import Method
    from pipeline.data.feature_store import FeatureStore
    from pipeline.data.prepared import PreparedData
    from pipeline.evaluation.evaluation_settings import EvaluationSettings
    from pipeline.evaluation.signature import RewardProtocol
    from pipeline.models.decoder import Decoder
    from pipeline.section import Section
    from pipeline.training.loop import EpochBatches


class NameReference(NamedTuple):
    """A name in params.yaml that must be one of `known`. `kind` describes these names; `keys` is the path."""

    value: str
    known: Collection[str]
    kind: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class AgentSections:
    """Schemas of the blocks of `pretrain` for agents that are trained together.

    `judges` are schemas of further listeners that may serve as judges. `own_keys` are keys of `pretrain` blocks
    that no other schema requires. `metric` is the validation metric of these agents, in addition to the metrics
    of captions.
    """

    title: str
    speaker: type[Section]
    listener: type[Section]
    judges: tuple[type[Section], ...] = ()
    own_keys: tuple[str, ...] = ()
    metric: str = ""

    @property
    def listeners(self) -> tuple[type[Section], ...]:
        """Return the schemas of all listeners."""
        return self.listener, *self.judges


class SplitEvaluation(Protocol):
    """An evaluation protocol. `not_computed` maps each metric that could not be computed to the reason."""

    not_computed: dict[str, str]

    def evaluate_split(self, speaker: Decoder, split: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """Return the results of `split` for metrics.json, and the columns of captions.parquet."""

    def summarise(self, results: Mapping[str, Any]) -> dict[str, float]:
        """Return the summary metrics that DVC shows, from the results of a split."""

    def signature(self, splits: Sequence[str], objective: RewardProtocol, gamma: float) -> str:
        """Return the protocol signature in one line: all conditions that comparable results share."""


class Slice(ABC):
    """A package outside the core with agents of its own, and the protocol that evaluates them.

    `agents` are the classes that files of weights may name. A method with an agent of one of the classes
    `handled_agents` belongs to the slice.
    """

    agents: tuple[type[nn.Module], ...]
    handled_agents: tuple[type[nn.Module], ...]

    @abstractmethod
    def build_evaluation(
        self,
        settings: EvaluationSettings,
        prepared: PreparedData,
        store: FeatureStore,
        judges: Mapping[str, Path],
        pretrained: Path,
        method: str,
        rerank: int | None,
        device: torch.device,
    ) -> SplitEvaluation:
        """Build the protocol of the section `evaluate` for a method.

        `judges` are the folders of judges' weights by name, and `pretrained` is the folder of pretrained agents.
        `rerank` is the number of captions per image that are reranked; None: no reranking. Raises UserError for
        settings that the slice cannot evaluate.
        """


class SliceTraining(ABC):
    """The parts of the stages that train a slice's agents. These agents have one of the classes `handled_agents`."""

    handled_agents: tuple[type[nn.Module], ...]

    @abstractmethod
    def trains(self, settings: Section) -> bool:
        """Return whether a block of `pretrain` describes an agent of this slice."""

    @abstractmethod
    def build_pretraining(self, settings: Section, prepared: PreparedData, store: FeatureStore) -> Method:
        """Build the method that pretrains the agent that the settings describe."""

    @abstractmethod
    def pair_agents(self, speaker: nn.Module, listener: nn.Module) -> object:
        """Return both agents as one object, the first argument of the slice's compositions."""

    @abstractmethod
    def build_adaptation(self, speaker: nn.Module, listener: nn.Module) -> Method:
        """Build the method that adapts `listener` to the frozen `speaker`."""

    @abstractmethod
    def build_batches(
        self, prepared: PreparedData, store: FeatureStore, rows: np.ndarray, batch: int, seed: int, **options: Any
    ) -> EpochBatches:
        """Build training batches of the images `rows`; `options` are the further options of `Batches`."""

    @abstractmethod
    def build_validation(
        self, method: Method, prepared: PreparedData, store: FeatureStore, device: torch.device
    ) -> Callable[[], dict[str, float]]:
        """Build the validation of the method's agents on the validation split."""
