"""The schema of params.yaml: each section's keys, types and ranges. A key with a default, mostly null, may be omitted.

Settings of a part of the pipeline are declared in its room, in a module without torch. Sections here add what the stage
does with the part, such as its optimisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from pipeline.analysis.selection import ReportSettings
from pipeline.composition.objective import Objective
from pipeline.composition.pretraining_settings import ListenerSettings, MatchingSettings, SpeakerPretraining
from pipeline.composition.reward_settings import RetrieverSettings
from pipeline.config.data_schema import MAIN, DrawSettings, FeatureSettings, PrepareSettings
from pipeline.config.reading import read_mapping
from pipeline.config.views import StageParameters, listed_keys
from pipeline.evaluation.evaluation_settings import EvaluationSettings
from pipeline.models.model_settings import PretrainedJudgeSettings
from pipeline.ranges import Dropped, Each, Few, Natural, NonNegative, Positive, Seed, Size
from pipeline.section import Given, Name, Section
from pipeline.training.optimisation import Optimisation


def _selects(*metrics: str) -> AfterValidator:
    """Return a check of Optimisation: `select` must be `last` or one of `metrics`, and related settings must fit."""

    def check(optimisation: Optimisation) -> Optimisation:
        select = optimisation.select
        if optimisation.schedule == "step" and (optimisation.decay is None or optimisation.decay_every is None):
            raise ValueError("schedule step needs decay and decay_every (epochs)")
        if optimisation.schedule != "step" and optimisation.start_epoch:
            raise ValueError(
                f"start_epoch {optimisation.start_epoch} goes with schedule step, not with {optimisation.schedule}; "
                "set it to 0"
            )
        if select != "last" and optimisation.validate_every == 0:
            raise ValueError(f"select {select} needs validations: set validate_every to 1 or more epochs")
        if optimisation.patience is not None and select == "last":
            raise ValueError("patience needs a validation metric to wait for: set select to one, recall@10 say")
        if select not in ("last", *metrics):
            raise ValueError(f"select = {select} is not allowed: {' | '.join(('last', *metrics))}")
        return optimisation

    return AfterValidator(check)


RECALL = ("recall@1", "recall@5", "recall@10")


class ListenerBlock(ListenerSettings):
    """A listener and its pretraining; `seed` is added to the global one."""

    seed: Seed
    optimisation: Annotated[Optimisation, Given, _selects("rsum", *RECALL)]


class SpeakerBlock(SpeakerPretraining):
    """A speaker and its pretraining."""

    features: Name
    optimisation: Annotated[Optimisation, Given, _selects("cider")]


class DialogEncoderSettings(Section):
    """An encoder of image, history and question for a generator or a discriminator; `history` or `image` may be off.

    `layer_norm`: normalises the encoding before its tanh; false: the paper's form, whose tanh saturates in generators.
    `region_positions`: encodes the position of each region, in grids of equal size in every image. `round_positions`:
    encodes the age of each round of the history.
    """

    features: Name
    encoder: Literal["hciae", "lf", "hre"]
    word_dim: Size
    hidden_dim: Size
    dropout: Dropped
    history: bool = True
    image: bool = True
    layer_norm: bool = True
    region_positions: bool = False
    round_positions: bool | None = None
    optimisation: Annotated[Optimisation, Given, _selects("MRR")]

    def _check(self) -> None:
        if self.round_positions is not None and self.encoder != "hciae":
            raise ValueError(f"round_positions needs encoder hciae, got {self.encoder}: leave it out")


class GeneratorSettings(DialogEncoderSettings):
    """A generator of answers in a dialog, and its pretraining; `layers` and `heads` belong to the transformer."""

    decoder: Literal["lstm", "transformer"]
    layers: Few | None = None
    heads: Few | None = None

    def _check(self) -> None:
        super()._check()
        if any((size is None) != (self.decoder == "lstm") for size in (self.layers, self.heads)):
            raise ValueError("decoder transformer takes layers and heads, decoder lstm neither")


class DiscriminatorSettings(DialogEncoderSettings):
    """A discriminator that ranks candidate answers.

    Its negatives are `sampled_options` of a round's candidates (null: all), and `batch_negatives` human answers to
    other questions of the batch. `seed` is added to the global one.
    """

    answer: Literal["last", "attention"]
    encode_eos: bool = False
    sampled_options: Few | None = None
    batch_negatives: Natural = 0
    norm_penalty: NonNegative = 0.0
    seed: Seed = 0


def _distinctive_key(block: Any) -> str:
    """Return the key of a block of `pretrain` that only its schema requires; `encoder` for a listener's."""
    keys = block if isinstance(block, Mapping) else vars(block) if isinstance(block, Section) else ()
    return next((key for key in ("architecture", "network", "decoder", "answer") if key in keys), "encoder")


PretrainSettings = Annotated[
    Annotated[SpeakerBlock, Tag("architecture")]
    | Annotated[PretrainedJudgeSettings, Tag("network")]
    | Annotated[GeneratorSettings, Tag("decoder")]
    | Annotated[DiscriminatorSettings, Tag("answer")]
    | Annotated[ListenerBlock, Tag("encoder")],
    Discriminator(_distinctive_key),
]


class RetrieverSection(RetrieverSettings):
    """The reward models, and the training of their heads."""

    optimisation: Annotated[Optimisation, Given, _selects()]


class TrainSettings(Section):
    """Joint training: its optimisation and the methods' common objective settings."""

    optimisation: Annotated[Optimisation, Given, _selects("cider", *RECALL, "MRR")]
    objective: Annotated[Objective, Given]


class AdaptSection(MatchingSettings):
    """Adaptation of a listener to a fixed speaker: one budget for the speakers of all methods."""

    optimisation: Annotated[Optimisation, Given, _selects("cider", *RECALL, "MRR")]


class RerankSettings(Section):
    """Reranking: of `samples` captions of an image, the one that the method's own listener scores highest is taken."""

    samples: Few


class PragmaticSettings(Section):
    """Pragmatic decoding with weight alpha: words tell the image from its nearest images, `distractors` of them."""

    alpha: NonNegative
    distractors: Few = 7


class EvaluateSection(EvaluationSettings):
    """The evaluation of every method, on `splits`.

    `candidate_rankers`: method → rankers of the candidates in dialogs that are evaluated with it, once: chance, prior,
    question_prior, names in `pretrain`.
    """

    splits: Annotated[tuple[Literal["train", "val", "test"], ...], *Each]
    candidate_rankers: dict[Name, Annotated[tuple[Name, ...], *Each]] = Field(default_factory=dict)


Seeds = Annotated[tuple[Seed, ...], *Each]
Options = dict[str, Any]


def _grids(value: Any) -> tuple[Options, ...]:
    """Return a method's grids as in params.yaml: one mapping of options to lists of values, or several of them."""
    grids = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not grids or not all(isinstance(grid, dict) for grid in grids):
        raise ValueError("options and their lists of values, as in {lambda: [0.1, 0.2]}, or a list of such grids")
    return grids


class SweepSettings(Section):
    """The grid: method → option → values. Every combination with every seed is a cell.

    A method may have several grids. `seed` among a grid's options replaces `seeds`. `seconds_per_cell` is the
    time of a cell on one core. It is the basis of time estimates until a cell has run here.
    """

    seeds: Seeds
    grid: dict[Name, Annotated[Any, AfterValidator(_grids)]]
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
    report: Annotated[ReportSettings, Given]

    def _check(self) -> None:
        if MAIN not in self.features:
            raise ValueError(f"features.{MAIN} is missing: speakers and the listener need it")
        for name, section in self.features.items():
            if self.prepare.images is None and section.network != "imported":
                raise ValueError(
                    f"prepare.images = null goes with features.{name}.network: imported; "
                    f"{section.network} needs the images"
                )

    def for_stage(
        self, stage: str, instance: str | None = None, *, dvc_yaml: Path = Path("dvc.yaml")
    ) -> StageParameters:
        """Return the parameters that `dvc_yaml` lists for `stage` (`instance`: the item or key of its foreach)."""
        listed = listed_keys(read_mapping(dvc_yaml), stage, instance, self.model_dump(mode="json"))
        return StageParameters(self, listed, stage if instance is None else f"{stage}@{instance}")
