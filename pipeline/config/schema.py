"""The schema of params.yaml: each section's keys, types and ranges. A key with a default, null mostly, may be left out.

What a part of the pipeline takes as a dataclass is declared there alone, in a module that does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.composition.objective import Objective
from pipeline.evaluation.set_sizes import SetSizes
from pipeline.ranges import Count, Dropped, Natural, NonNegative, Positive, Share
from pipeline.training.optimisation import Optimisation

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]  # it names stages and folders


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if again := [value for i, value in enumerate(values) if value in values[:i]]:
        raise ValueError(f"{again[0]} stands there twice")
    return values


Each = [Field(strict=False, min_length=1), AfterValidator(_different)]  # YAML's lists, not empty, nothing twice


class Section(BaseModel):
    """A mapping that knows its keys and takes no value for another (true is no number, "3" is no 3)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _values_go_together(self) -> Self:
        self._check()
        return self

    def _check(self) -> None:
        """Raise ValueError where values that are allowed do not go together."""


class Scenes(Section):
    """How many scenes to draw, and how large (pixels a side)."""

    images: Count
    size: Annotated[int, Field(ge=32)]
    val: Count
    test: Count

    def _check(self) -> None:
        if self.val + self.test >= self.images:
            raise ValueError(f"val {self.val} and test {self.test} leave nothing of images {self.images} to train on")


class Shares(Section):
    """What share of the images is drawn for val and for test, and from which seed."""

    val: Annotated[float, Field(gt=0, lt=1)]
    test: Annotated[float, Field(gt=0, lt=1)]
    seed: Natural

    def _check(self) -> None:
        if self.val + self.test >= 1:
            raise ValueError(f"val {self.val} and test {self.test} leave nothing to train on")


class Expect(Section):
    """How many images of each split the annotations name, and how many words there are (UNK included)."""

    train: Count | None = None
    val: Count | None = None
    test: Count | None = None
    words: Count | None = None


FORMS = {
    "karpathy": "format karpathy takes annotations: file, and neither splits nor shares",
    "coco": "format coco takes annotations {train: file, val: …, test: …}, or annotations [file, …] and splits: file",
    "cocotalk": "format cocotalk takes annotations {json: file, labels: file}, captions: file if need be, and no more",
    "flickr8k": "format flickr8k takes annotations {captions: file, train: list, val: …, test: …} and no more",
    "folder": "format folder takes annotations: table, and shares (no splits) where that has no column split",
}


class Prepare(Section):
    """Where the images and captions lie, and what becomes a word."""

    dataset: Name
    format: Literal["karpathy", "coco", "cocotalk", "flickr8k", "folder"]
    root: Text
    annotations: (
        Text
        | Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
        | dict[Literal["captions", "train", "val", "test", "json", "labels"], Text]
    )
    images: Text | None = None
    splits: Text | None = None
    shares: Shares | None = None
    min_count: Natural | None = None
    max_words: Count
    tokenizer: Text | None = None
    count_words: Literal["train", "all"] = "train"
    document_frequencies: Text | None = None
    expect: Expect | None = None
    corrupt: Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(_different)] = ()

    def _check(self) -> None:
        match self.format, self.annotations:
            case ("karpathy" | "folder", str()):
                fits = self.splits is None
            case ("flickr8k", dict(named)):
                fits = self.splits is None and set(named) == {"captions", "train", "val", "test"}
            case ("cocotalk", dict(named)):
                fits = self.splits is None and set(named) - {"captions"} == {"json", "labels"}
            case ("coco", dict(named)):
                fits = self.splits is None and bool(named) and set(named) <= {"train", "val", "test"}
            case ("coco", _):
                fits = self.splits is not None
            case _:
                fits = False
        if not fits or (self.shares is not None and self.format != "folder"):
            raise ValueError(FORMS[self.format])
        if self.tokenizer is not None and self.format == "cocotalk":
            raise ValueError("tokenizer reads captions as they were written, which format cocotalk does not have")
        if (self.min_count is None) != (self.format == "cocotalk" or self.tokenizer is not None):
            needed = "min_count is needed where words are counted"
            raise ValueError(f"{needed}; format cocotalk and a tokenizer bring their own: min_count: null")


class Detector(Section):
    """The caption-word detector that is trained where there are no weights."""

    epochs: Natural
    width: Count
    learning_rate: Positive
    batch: Count


class Imported(Section):
    """Where features lie that were extracted elsewhere, and how many regions of an image are kept."""

    form: Literal["npy_folders", "tsv", "detections"]
    regions: Text | Annotated[tuple[Text, ...], *Each]
    pooled: Text | None = None
    regions_kept: Count

    def _check(self) -> None:
        if not isinstance(self.regions, str) and self.form != "tsv":
            raise ValueError(f"regions is one path for form {self.form}; only tsv takes a list of files")


Channels = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]


class Boxes(Section):
    """How many regions of a detector: `fixed`, or those from a score on (`threshold`), within two numbers."""

    fixed: Count | None = None
    least: Count | None = None
    most: Count | None = None
    threshold: Share | None = None

    def _check(self) -> None:
        given = [value is not None for value in (self.fixed, self.least, self.most, self.threshold)]
        if given not in ([True, False, False, False], [False, True, True, True]):
            raise ValueError("boxes is {fixed: 36} or {least: 10, most: 100, threshold: 0.2}")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(f"least {self.least} is more than most {self.most}")


class Features(Section):
    """The network that sees the images: word_detector, fasterrcnn_resnet50_fpn_v2, torchvision/… (its classifiers),
    open_clip/….… (network and weights), hub/… (a captioner's), any of timm, or imported: what another one saw.
    """

    network: Text
    weights: Text | None = None
    options: dict[str, Any] = {}
    image_size: Count | None = None
    batch: Count | None = None
    mean: Channels | None = None
    std: Channels | None = None
    project: Count | None = None
    cells: Count | None = None
    boxes: Boxes | None = None
    detector: Detector | None = None
    imported: Imported | None = None

    def _check(self) -> None:
        own, detects = self.network == "word_detector", self.network.startswith("fasterrcnn_")
        if (self.network == "imported") != (self.imported is not None):
            raise ValueError("an imported: block goes with network imported, and with no other")
        if self.imported is not None:
            for name in type(self).model_fields:
                if name not in ("network", "imported") and getattr(self, name):
                    raise ValueError(f"network imported takes no {name}: the features are there already")
            return
        if self.batch is None or (self.image_size is None and not self.network.startswith("hub/")):
            raise ValueError(f"network {self.network} needs image_size and batch")
        if own and (self.weights is not None or self.detector is None):
            raise ValueError("network word_detector takes weights: null and a detector: block")
        if not own and (self.weights is None or self.detector is not None):
            raise ValueError(f"network {self.network} takes weights: hub or a safetensors file, and detector: null")
        if detects and (self.boxes is None or self.cells is not None):
            raise ValueError(f"network {self.network} takes boxes: {{fixed: 36}}, say, and cells: null")
        if not detects and self.boxes is not None:
            raise ValueError(f"network {self.network} detects nothing: boxes: null")


class _FromMapping:
    """Lets a mapping be a dataclass, which pydantic's strict mode (`true` is no number) takes instances alone for."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        resolved = cast(dict[str, Any], handler.resolve_ref_schema(schema))
        resolved["strict"] = False  # of the mapping; its fields stay as strict as the section
        return schema


Given = _FromMapping()


def _selects(*metrics: str) -> AfterValidator:
    """Optimisation that has what it needs, and whose `select` is `last` or a metric that this training validates."""

    def check(optimisation: Optimisation) -> Optimisation:
        select = optimisation.select
        if optimisation.schedule == "step" and (optimisation.decay is None or optimisation.decay_every is None):
            raise ValueError("schedule step needs decay and decay_every (epochs)")
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
    """What a listener learns to match captions and images by."""

    objective: Literal["infonce", "hinge"]
    margin: NonNegative
    temperature: Positive
    negatives: Literal["hardest", "all"]


class Recover(Section):
    """When a listener counts as stuck at the collapse plateau (steps), and how long it is helped (steps)."""

    patience: Count
    steps: Count


class ListenerSettings(Matching):
    """A listener and its pretraining; `seed` is added to the global one."""

    encoder: Literal["gru", "bag"]
    words: Count
    hidden: Count
    warmup_epochs: Natural
    recover: Recover | None = None
    seed: Natural
    optimisation: Annotated[Optimisation, Given, _selects("rsum", *RECALL)]


class Lora(Section):
    """Low-rank updates that learn in place of a model's weights; targets null: of all its linear layers."""

    rank: Count
    alpha: Positive
    targets: Annotated[tuple[Text, ...], *Each] | None = None


class SpeakerSettings(Section):
    """A speaker and its pretraining; where images are dropped, it learns a null image, which guidance needs.

    With architecture hub it is the captioner `model` of transformers, whose weights learn, or with `lora` those.
    """

    architecture: Literal["att2in", "transformer", "hub"]
    model: Text | None = None
    lora: Lora | None = None
    words: Count | None = None
    hidden: Count | None = None
    attention: Count | None = None
    encoder_layers: Natural | None = None
    layers: Count | None = None
    heads: Count | None = None
    dropout: Dropped
    scheduled_sampling: Annotated[ScheduledSampling, Given] | None = None
    image_dropout: Dropped = 0.0
    optimisation: Annotated[Optimisation, Given, _selects("cider")]

    def _check(self) -> None:
        sizes = {
            "att2in": ("hidden", "words", "attention"),
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


class Pretrained(Section):
    """A judge that was trained elsewhere: a network of open_clip, and where the images are that it is to see."""

    network: Text
    weights: Text
    options: dict[str, Any] = {}
    images: Text
    image_size: Count
    batch: Count = 64

    def _check(self) -> None:
        if not self.network.startswith("open_clip/"):
            raise ValueError(f"network = {self.network} is no judge: open_clip/NETWORK.WEIGHTS, by open_clip's names")


def pretrained(block: Mapping[str, Any]) -> type[Section]:
    """What a block of `pretrain` is, by the key that it must have: a speaker, a judge from elsewhere, or a listener."""
    return SpeakerSettings if "architecture" in block else Pretrained if "network" in block else ListenerSettings


class Train(Section):
    """Joint training."""

    optimisation: Annotated[Optimisation, Given, _selects("cider", *RECALL)]
    objective: Annotated[Objective, Given]


class Adapt(Matching):
    """How a listener gets used to a speaker that stays as it is: one budget for the speakers of all methods."""

    optimisation: Annotated[Optimisation, Given, _selects("cider", *RECALL)]


class Evaluate(Section):
    """Decoding (beam 1: greedy) and what is measured; `several`: also of sets of captions of an image."""

    beam: Count
    metrics: Annotated[tuple[Literal["BLEU", "METEOR", "ROUGE-L", "CIDEr", "SPICE"], ...], *Each]
    splits: Annotated[tuple[Literal["train", "val", "test"], ...], *Each]
    judges: dict[Name, Name]
    several: Annotated[SetSizes, Given] | None = None


Seeds = Annotated[tuple[Natural, ...], *Each]
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


class Report(Section):
    """Which setting of each method the report chooses (on val), and what it shows."""

    images: Natural
    seed: Natural
    control: Name
    min_cider_share: Share
    metric: Literal["CIDEr", "BLEU-4", "METEOR", "ROUGE-L", "SPICE"]
    frozen: Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(_different)] = ()
    at_cider: Annotated[tuple[Positive, ...], *Each] | None = None
    at_recall: Annotated[tuple[Positive, ...], *Each] | None = None
    recall: Literal["R@1", "R@5", "R@10"] = "R@10"


class Sections(Section):
    """The whole file; a block of `methods` has the signature of its composition as its schema."""

    seed: Natural
    draw: dict[Literal["scenes"], Scenes]
    prepare: Prepare
    features: Features
    pretrain: dict[Name, dict[str, Any]]
    train: Train
    adapt: Adapt
    methods: dict[Name, dict[str, Any]]
    evaluate: Evaluate
    sweep: Sweep
    report: Report

    def _check(self) -> None:
        if self.prepare.images is None and self.features.network != "imported":
            raise ValueError(
                f"prepare.images = null goes with features.network: imported; {self.features.network} needs the images"
            )
