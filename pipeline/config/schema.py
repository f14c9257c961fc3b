"""The schema of params.yaml: each section's keys, types and ranges. A key with a default, null mostly, may be left out.

Settings that a part of the pipeline takes as a dataclass are declared there only, in a module without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator, Field

from pipeline.analysis.selection import ReportSettings
from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.composition.objective import Objective
from pipeline.config.data_schema import MAIN, Draw, Features, Prepare
from pipeline.config.reading import read_mapping
from pipeline.config.section import Given, Name, Section, Text
from pipeline.config.views import View, listed_keys
from pipeline.evaluation.set_sizes import SetSizes
from pipeline.ranges import Count, Dropped, Each, Few, Natural, NonNegative, Positive, Seed, Size, different
from pipeline.training.optimisation import Optimisation


def _selects(*metrics: str) -> AfterValidator:
    """Optimisation that has what it needs, and whose `select` is `last` or a metric that this training validates."""

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


class Matching(Section):
    """The objective by which a listener learns to match captions and images; `reduction` is over the batch."""

    objective: Literal["infonce", "hinge"]
    margin: NonNegative
    temperature: Positive
    negatives: Literal["hardest", "all"]
    reduction: Literal["mean", "sum"] = "mean"


class Recover(Section):
    """After how many steps without progress a listener is taken to have collapsed, and for how many it is helped."""

    patience: Count
    steps: Count


class ListenerSettings(Matching):
    """A listener and its pretraining, with the features that it sees; `seed` is added to the global one.

    While it learns, these shares of an image's vector and of the words are dropped.
    """

    features: Name
    encoder: Literal["gru", "bag", "pair"]
    words: Size
    hidden: Size
    warmup_epochs: Natural
    recover: Recover | None = None
    vector_dropout: Dropped = 0.0
    word_dropout: Dropped = 0.0
    seed: Seed
    optimisation: Annotated[Optimisation, Given, _selects("rsum", *RECALL)]


class Lora(Section):
    """Low-rank updates that are trained instead of a model's weights; targets null: of all its linear layers."""

    rank: Size
    alpha: Positive
    targets: Annotated[tuple[Text, ...], *Each] | None = None


class SpeakerSettings(Section):
    """A speaker and its pretraining; where images are dropped, it learns a null image, which guidance needs.

    With architecture hub it is the captioner `model` of transformers, whose weights learn, or with `lora` those.
    """

    features: Name
    architecture: Literal["att2in", "lstm", "transformer", "hub"]
    model: Text | None = None
    lora: Lora | None = None
    words: Size | None = None
    hidden: Size | None = None
    attention: Size | None = None
    encoder_layers: Annotated[int, Ge(0), Le(1_000)] | None = None
    layers: Few | None = None
    heads: Few | None = None
    dropout: Dropped
    scheduled_sampling: Annotated[ScheduledSampling, Given] | None = None
    image_dropout: Dropped = 0.0
    optimisation: Annotated[Optimisation, Given, _selects("cider")]

    def _check(self) -> None:
        sizes = {
            "att2in": ("hidden", "words", "attention"),
            "lstm": ("hidden", "words"),
            "transformer": ("hidden", "encoder_layers", "layers", "heads"),
            "hub": ("model",),
        }
        for name in {name for names in sizes.values() for name in names}:
            if (getattr(self, name) is None) == (name in sizes[self.architecture]):
                takes = ", ".join(sizes[self.architecture])
                what = "takes" if self.architecture == "hub" else "takes the sizes"
                raise ValueError(f"architecture {self.architecture} {what} {takes}, and no other")
        if self.lora is not None and self.architecture != "hub":
            raise ValueError(f"lora goes with architecture hub, not with {self.architecture}")
        if self.heads and self.hidden and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} cannot be divided among {self.heads} heads")


class Understanding(Section):
    """An encoder of image, history and question, for either side of a dialog; without one of them, it is not told.

    `places`: it knows which region is where, in grids that have as many in every image. `order`: how long ago a round
    of the history is.
    """

    features: Name
    encoder: Literal["hciae", "lf", "hre"]
    words: Size
    hidden: Size
    dropout: Dropped
    history: bool = True
    image: bool = True
    places: bool = False
    order: bool | None = None
    optimisation: Annotated[Optimisation, Given, _selects("MRR")]

    def _check(self) -> None:
        if self.order is not None and self.encoder != "hciae":
            raise ValueError("order goes with encoder hciae: the others know the order of rounds")


class GeneratorSettings(Understanding):
    """Who answers in a dialog, and the pretraining; `layers` and `heads` are of the transformer."""

    decoder: Literal["lstm", "transformer"]
    layers: Few | None = None
    heads: Few | None = None

    def _check(self) -> None:
        super()._check()
        if any((size is None) != (self.decoder == "lstm") for size in (self.layers, self.heads)):
            raise ValueError("decoder transformer takes layers and heads, decoder lstm neither")


class DiscriminatorSettings(Understanding):
    """Who knows the answer among candidates; its negatives are `options` of a round (null: all), and `others`, human
    answers to other questions of the batch. `seed` is added to the global one.
    """

    answer: Literal["last", "attention"]
    hears_end: bool = False
    options: Few | None = None
    others: Natural = 0
    norms: NonNegative = 0.0
    seed: Seed = 0


class Pretrained(Section):
    """A judge that was trained elsewhere: a network of open_clip, and the features that the same network has seen."""

    features: Name
    network: Text
    weights: Text
    options: dict[str, Any] = Field(default_factory=dict)

    def _check(self) -> None:
        if not self.network.startswith("open_clip/"):
            raise ValueError(f"network = {self.network} is no judge: open_clip/NETWORK.WEIGHTS, by open_clip's names")


def pretrained(block: Mapping[str, Any]) -> type[Section]:
    """What a block of `pretrain` is, by the key that it must have."""
    kinds: dict[str, type[Section]] = {
        "architecture": SpeakerSettings,
        "network": Pretrained,
        "decoder": GeneratorSettings,
        "answer": DiscriminatorSettings,
    }
    return next((kind for key, kind in kinds.items() if key in block), ListenerSettings)


class RetrieverSettings(Section):
    """What rewards the captions of methods that take `rewards`: a fixed retriever, and two heads on its vectors.

    `model`: its name in pretrain; `mined`: by rank, which of the training images nearest to an image are negatives
    beside those of the batch; `beam`, `no_repeat`: how the speaker searches the captions that are rewarded. `judge`:
    the name in pretrain of who looks for the validation images, too, and rewards nothing; None: nobody.
    """

    model: Name
    speaker: Name
    judge: Name | None = None
    temperature: Positive
    mined: Annotated[tuple[Count, ...], Field(strict=False), AfterValidator(different)] = ()
    hidden: Annotated[tuple[Size, ...], Field(strict=False)] = (512, 256)
    beam: Few = 5
    no_repeat: Few | None = 3
    optimisation: Annotated[Optimisation, Given, _selects()]


class Train(Section):
    """Joint training."""

    optimisation: Annotated[Optimisation, Given, _selects("cider", *RECALL, "MRR")]
    objective: Annotated[Objective, Given]


class Adapt(Matching):
    """How a listener adapts to a fixed speaker: one budget for the speakers of all methods."""

    optimisation: Annotated[Optimisation, Given, _selects("cider", *RECALL, "MRR")]


class Near(Section):
    """The near gallery: of drawn scenes by their facts, else the `images` nearest to each image, itself among them.

    `by`: facts, features (the pooled ones, which judges see, too), or the name of a retriever in pretrain.
    """

    by: Name
    images: Annotated[int, Ge(2), Le(10_000_000)] | None = None

    def _check(self) -> None:
        if (self.by == "facts") != (self.images is None):
            raise ValueError("images goes with features or a retriever, which need it; facts say themselves how many")


class Rerank(Section):
    """Of `samples` captions of an image the one is taken by which the method's own listener finds it most surely."""

    samples: Few


class Evaluate(Section):
    """Decoding (beam 1: greedy) and what is measured; `several`: also of sets of captions of an image.

    With `no_repeat` no caption says so many words twice in the same order.

    `baselines`: method → captions of drawn scenes that are measured beside it, for which nothing is trained. `beside`:
    method → who in dialogs ranks the candidates as well, once: chance, prior, question_prior, names in `pretrain`.
    """

    beam: Few
    no_repeat: Few | None = None
    metrics: Annotated[tuple[Literal["BLEU", "METEOR", "ROUGE-L", "CIDEr", "SPICE"], ...], *Each]
    splits: Annotated[tuple[Literal["train", "val", "test"], ...], *Each]
    judges: dict[Name, Name]
    near: Near | None = None
    baselines: dict[Name, Annotated[tuple[Literal["template", "oracle", "random"], ...], *Each]] = Field(
        default_factory=dict
    )
    beside: dict[Name, Annotated[tuple[Name, ...], *Each]] = Field(default_factory=dict)
    several: Annotated[SetSizes, Given] | None = None


Seeds = Annotated[tuple[Seed, ...], *Each]
Options = dict[str, Any]


def _grids(value: Any) -> tuple[Options, ...]:
    """A method's grids as params.yaml has them: one mapping of options to lists of values, or several of them."""
    grids = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not grids or not all(isinstance(grid, dict) for grid in grids):
        raise ValueError("options and their lists of values, as in {lambda: [0.1, 0.2]}, or a list of such grids")
    return grids


class Sweep(Section):
    """The grid: method → option → values; every combination with every seed is a cell.

    A method may have several grids; `seed` among a grid's options stands for `seeds`. `seconds`, a cell's on one core,
    is what the time of a grid is estimated from as long as no cell has run here.
    """

    seeds: Seeds
    grid: dict[Name, Annotated[Any, AfterValidator(_grids)]]
    seconds: Positive | None = None


class Params(Section):
    """The parameter file. `load` checks the blocks of `pretrain` and `methods` and fills in their defaults."""

    seed: Seed
    draw: Draw
    prepare: Prepare
    features: dict[Name, Features]
    pretrain: dict[Name, dict[str, Any]]
    retriever: RetrieverSettings | None = None
    train: Train
    adapt: Adapt
    methods: dict[Name, dict[str, Any]]
    evaluate: Evaluate
    sweep: Sweep
    report: Annotated[ReportSettings, Given]

    def _check(self) -> None:
        if MAIN not in self.features:
            raise ValueError(f"features.{MAIN} is missing: what speakers and the listener see")
        for name, section in self.features.items():
            if self.prepare.images is None and section.network != "imported":
                raise ValueError(
                    f"prepare.images = null goes with features.{name}.network: imported; "
                    f"{section.network} needs the images"
                )

    def for_stage(self, stage: str, instance: str | None = None, *, dvc_yaml: Path = Path("dvc.yaml")) -> View:
        """The parameters that `dvc_yaml` lists for `stage` (`instance`: the item or key of its foreach)."""
        tree = self.model_dump(mode="json")
        listed = listed_keys(read_mapping(dvc_yaml), stage, instance, tree)
        return View(tree, listed, stage if instance is None else f"{stage}@{instance}")
