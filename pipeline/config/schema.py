"""The schema of params.yaml: each section's keys, types and ranges. A key with a default, mostly null, may be omitted.

Settings of a part of the pipeline are declared in that part's package, in a module without torch. Sections here add
the stage's own keys, such as its optimisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Tag

from pipeline.analysis.selection import ReportSettings
from pipeline.composition.objective import Objective
from pipeline.composition.pretraining_settings import ListenerSettings, MatchingSettings, SpeakerPretraining
from pipeline.composition.reward_settings import RetrieverSettings
from pipeline.config.data_schema import MAIN, FeatureSettings, PrepareSettings
from pipeline.config.reading import read_mapping, show_value
from pipeline.config.views import StageParameters, list_stage_keys
from pipeline.evaluation.evaluation_settings import EvaluationSettings
from pipeline.models.model_settings import PretrainedJudgeSettings
from pipeline.ranges import Distinct, NonNegative, Positive, Seed, SmallCount
from pipeline.section import FromMapping, Name, Section
from pipeline.slices.agent_sections import SLICE_AGENTS, SliceBlock
from pipeline.slices.section_keys import DrawSettings, EvaluateKeys
from pipeline.training.optimisation import Optimisation
from pipeline.training.selectable_metrics import build_select_validator

RECALL = ("recall@1", "recall@5", "recall@10")
SELECTABLE = ("cider", *RECALL, *(agents.metric for agents in SLICE_AGENTS))  # metrics of a speaker with a listener


class ListenerBlock(ListenerSettings):
    """A listener and its pretraining; `seed` is added to the top-level seed."""

    seed: Seed
    optimisation: Annotated[Optimisation, FromMapping, build_select_validator("rsum", *RECALL)]


class SpeakerBlock(SpeakerPretraining):
    """A speaker and its pretraining."""

    features: Name
    optimisation: Annotated[Optimisation, FromMapping, build_select_validator("cider")]


def _find_distinctive_key(block: Any) -> str:
    """Return the key of a block of `pretrain` that only its schema requires; by default `encoder` of listeners."""
    keys = block if isinstance(block, Mapping) else vars(block) if isinstance(block, Section) else ()
    own = ("architecture", "network", *(key for agents in SLICE_AGENTS for key in agents.own_keys))
    return next((key for key in own if key in keys), "encoder")


PretrainSettings = Annotated[
    Annotated[SpeakerBlock, Tag("architecture")]
    | Annotated[PretrainedJudgeSettings, Tag("network")]
    | SliceBlock
    | Annotated[ListenerBlock, Tag("encoder")],
    Discriminator(_find_distinctive_key),
]


class RetrieverSection(RetrieverSettings):
    """Settings of the reward models, and the training of their heads."""

    optimisation: Annotated[Optimisation, FromMapping, build_select_validator()]


class TrainSettings(Section):
    """Joint training: its optimisation and the methods' common objective settings."""

    optimisation: Annotated[Optimisation, FromMapping, build_select_validator(*SELECTABLE)]
    objective: Annotated[Objective, FromMapping]


class AdaptSection(MatchingSettings):
    """Adaptation of a listener to a fixed speaker: one budget for the speakers of all methods."""

    optimisation: Annotated[Optimisation, FromMapping, build_select_validator(*SELECTABLE)]


class PragmaticSettings(Section):
    """Pragmatic decoding: words are chosen to distinguish an image from its `distractors` nearest images.

    `alpha` is the exponent of the posterior probability of the image among these images. `posterior`: the speaker's,
    by Bayes' rule, or the listener's.
    """

    alpha: NonNegative
    distractors: SmallCount = 7
    posterior: Literal["speaker", "listener"] = "speaker"


class EvaluateSection(EvaluateKeys, EvaluationSettings):
    """The evaluation of every method, on `splits`, with the keys of slices."""

    splits: Annotated[tuple[Literal["train", "val", "test"], ...], *Distinct]


Seeds = Annotated[tuple[Seed, ...], *Distinct]
Options = dict[str, Any]


def _list_grids(value: Any) -> tuple[Options, ...]:
    """Return a method's grids, from one mapping of options to lists of values or from a list of such mappings.

    Raises ValueError for any other value.
    """
    grids = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not grids or not all(isinstance(grid, dict) for grid in grids):
        raise ValueError(
            "expected options with lists of values, as in {lambda: [0.1, 0.2]}, or a list of such mappings, got "
            f"{show_value(value)}"
        )
    return grids


class SweepSettings(Section):
    """The grid: method → option → values. Every combination with every seed is a cell.

    A method may have several grids. `seed` among a grid's options replaces `seeds`. `seconds_per_cell` is the
    time of a cell on one core. It is the basis of time estimates until a cell has run here.
    """

    seeds: Seeds
    grid: dict[Name, Annotated[Any, AfterValidator(_list_grids)]]
    seconds_per_cell: Positive | None = None


class Params(Section):
    """The parameter file. `load` checks the blocks of `methods` and fills in their defaults."""

    seed: Seed
    draw: DrawSettings
    prepare: PrepareSettings
    features: dict[Name, FeatureSettings]
    pretrain: dict[Name, PretrainSettings]
    retriever: RetrieverSection | None = None
    train: TrainSettings
    adapt: AdaptSection
    methods: dict[Name, dict[str, Any]]
    evaluate: EvaluateSection
    sweep: SweepSettings
    report: Annotated[ReportSettings, FromMapping]

    def _check(self) -> None:
        if MAIN not in self.features:
            raise ValueError(f"features.{MAIN} is missing: speakers need it")
        for name, section in self.features.items():
            if self.prepare.images is None and section.network != "imported":
                raise ValueError(
                    f"prepare.images = null goes with network imported, got features.{name}.network = "
                    f"{section.network}; name the folder of the images, or change the network"
                )

    def select_for_stage(
        self, stage: str, instance: str | None = None, *, dvc_yaml: Path = Path("dvc.yaml")
    ) -> StageParameters[Params]:
        """Return the parameters that `dvc_yaml` lists for `stage` (`instance`: the item or key of its foreach).

        Raises UserError as `list_stage_keys` does, and for a listed key that does not exist.
        """
        listed = list_stage_keys(read_mapping(dvc_yaml), stage, instance, self.model_dump(mode="json"))
        return StageParameters(self, listed, stage if instance is None else f"{stage}@{instance}")
