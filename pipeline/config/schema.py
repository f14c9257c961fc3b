"""The schema of params.yaml: each section's keys, types and ranges. A key that may be null may be left out."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from pipeline.ranges import Count, Dropped, Natural, NonNegative, Positive, Share

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


class Scenes(Section):
    """How many scenes to draw, and how large (pixels a side)."""

    images: Count
    size: Annotated[int, Field(ge=32)]
    val: Count
    test: Count

    @model_validator(mode="after")
    def _some_are_left(self) -> Self:
        if self.val + self.test >= self.images:
            raise ValueError(f"val {self.val} and test {self.test} leave nothing of images {self.images} to train on")
        return self


class Shares(Section):
    """What share of the images is drawn for val and for test, and by which lot."""

    val: Annotated[float, Field(gt=0, lt=1)]
    test: Annotated[float, Field(gt=0, lt=1)]
    seed: Natural

    @model_validator(mode="after")
    def _some_are_left(self) -> Self:
        if self.val + self.test >= 1:
            raise ValueError(f"val {self.val} and test {self.test} leave nothing to train on")
        return self


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
    count_words: Literal["train", "all"] = "train"
    document_frequencies: Text | None = None
    expect: Expect | None = None
    corrupt: Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(_different)] = ()

    @model_validator(mode="after")
    def _annotations_are_of_the_form(self) -> Self:
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
        return self

    @model_validator(mode="after")
    def _words_are_counted_or_brought(self) -> Self:
        if (self.min_count is None) != (self.format == "cocotalk"):
            raise ValueError(
                "min_count is needed where words are counted; format cocotalk brings its own: min_count: null"
            )
        return self


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

    @model_validator(mode="after")
    def _only_tsv_files_are_several(self) -> Self:
        if not isinstance(self.regions, str) and self.form != "tsv":
            raise ValueError(f"regions is one path for form {self.form}; only tsv takes a list of files")
        return self


Channels = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]


class Boxes(Section):
    """How many regions of a detector: `fixed`, or those from a score on (`threshold`), within two numbers."""

    fixed: Count | None = None
    least: Count | None = None
    most: Count | None = None
    threshold: Share | None = None

    @model_validator(mode="after")
    def _one_way_or_the_other(self) -> Self:
        adaptive = (self.least, self.most, self.threshold)
        if (self.fixed is None) != all(value is not None for value in adaptive) or (
            self.fixed is not None and any(value is not None for value in adaptive)
        ):
            raise ValueError("boxes is {fixed: 36} or {least: 10, most: 100, threshold: 0.2}")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(f"least {self.least} is more than most {self.most}")
        return self


class Features(Section):
    """The network that sees the images: word_detector, fasterrcnn_resnet50_fpn_v2, torchvision/… (its classifiers),
    open_clip/….… (network and weights), any of timm, or imported: what another one saw.
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

    @model_validator(mode="after")
    def _imported_features_need_no_network(self) -> Self:
        if (self.network == "imported") != (self.imported is not None):
            raise ValueError("an imported: block goes with network imported, and with no other")
        if self.imported is None:
            if self.image_size is None or self.batch is None:
                raise ValueError(f"network {self.network} needs image_size and batch")
            return self
        for name in type(self).model_fields:
            if name not in ("network", "imported") and getattr(self, name):
                raise ValueError(f"network imported takes no {name}: the features are there already")
        return self

    @model_validator(mode="after")
    def _network_has_what_it_needs(self) -> Self:
        if self.network == "imported":
            return self
        own = self.network == "word_detector"
        if own and (self.weights is not None or self.detector is None):
            raise ValueError("network word_detector takes weights: null and a detector: block")
        if not own and (self.weights is None or self.detector is not None):
            raise ValueError(f"network {self.network} takes weights: hub or a safetensors file, and detector: null")
        detects = self.network.startswith("fasterrcnn_")
        if detects and (self.boxes is None or self.cells is not None):
            raise ValueError(f"network {self.network} takes boxes: {{fixed: 36}}, say, and cells: null")
        if not detects and self.boxes is not None:
            raise ValueError(f"network {self.network} detects nothing: boxes: null")
        return self


class Optimisation(Section):
    """How parameters move: Adam, a schedule in epochs, what is clipped, and which epoch is kept."""

    epochs: Natural
    batch: Count
    learning_rate: Positive
    schedule: Literal["step", "cosine", "constant"]
    decay: Share | None = None
    decay_every: Count | None = None
    clip_value: Positive | None = None
    clip_norm: Positive | None = None
    select: str
    validate_every: Natural
    patience: Count | None = None

    @model_validator(mode="after")
    def _steps_are_given(self) -> Self:
        if self.schedule == "step" and (self.decay is None or self.decay_every is None):
            raise ValueError("schedule step needs decay and decay_every (epochs)")
        if self.select != "last" and self.validate_every == 0:
            raise ValueError(f"select {self.select} needs validations: set validate_every to 1 or more epochs")
        if self.patience is not None and self.select == "last":
            raise ValueError("patience needs a validation metric to wait for: set select to one, recall@10 say")
        return self


def _selects(*metrics: str) -> AfterValidator:
    """Optimisation whose `select` is `last` or one of the metrics that this training validates."""

    def check(optimisation: Optimisation) -> Optimisation:
        if optimisation.select not in ("last", *metrics):
            raise ValueError(f"select = {optimisation.select} is not allowed: {' | '.join(('last', *metrics))}")
        return optimisation

    return AfterValidator(check)


RECALL = ("recall@1", "recall@5", "recall@10")


class Recover(Section):
    """When a listener counts as stuck at the collapse plateau (steps), and how long it is helped (steps)."""

    patience: Count
    steps: Count


class Listener(Section):
    """A listener and its pretraining; `seed` is added to the global one."""

    encoder: Literal["gru", "bag"]
    words: Count
    hidden: Count
    objective: Literal["infonce", "hinge"]
    margin: NonNegative
    temperature: Positive
    negatives: Literal["hardest", "all"]
    warmup_epochs: Natural
    recover: Recover | None = None
    seed: Natural
    optimisation: Annotated[Optimisation, _selects("rsum", *RECALL)]


class ScheduledSampling(Section):
    """From epoch `start` on, `by` more own words every `every` epochs, up to the share `most`."""

    start: Natural
    every: Count
    by: Share
    most: Share


class Speaker(Section):
    """A speaker and its pretraining; where images are dropped, it learns a null image, which guidance needs."""

    architecture: Literal["att2in", "transformer"] = "att2in"
    words: Count | None = None
    hidden: Count
    attention: Count | None = None
    encoder_layers: Natural | None = None
    layers: Count | None = None
    heads: Count | None = None
    dropout: Dropped
    scheduled_sampling: ScheduledSampling | None = None
    image_dropout: Dropped = 0.0
    optimisation: Annotated[Optimisation, _selects("cider")]

    @model_validator(mode="after")
    def _sizes_are_of_the_architecture(self) -> Self:
        sizes = {"att2in": ("words", "attention"), "transformer": ("encoder_layers", "layers", "heads")}
        for kind, names in sizes.items():
            for name in names:
                if (getattr(self, name) is None) == (kind == self.architecture):
                    takes = ", ".join(("hidden", *sizes[self.architecture]))
                    raise ValueError(f"architecture {self.architecture} takes the sizes {takes}, and no other")
        if self.heads and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} cannot be divided among {self.heads} heads")
        return self


class Pretrain(Section):
    """Who learns before the joint training."""

    listener: Listener
    speaker: Speaker
    judge: Listener


class Objective(Section):
    """What joint training optimises, where the papers leave it open."""

    margin: NonNegative
    hinge: Literal["hardest", "all"]
    reduction: Literal["sum", "mean"]
    eos_in_reward: bool
    document_frequencies: Literal["train", "batch"]
    greedy_dropout: bool
    centre: bool
    anchor: NonNegative
    ending: Literal["constant", "soft"]
    normalise: bool = False
    samples: Count = 1
    baseline: Literal["greedy", "leave_one_out", "group", "ground_truth", "none"] = "greedy"
    scaling: Literal["none", "group", "batch"] = "none"
    control: Literal["none", "relax"] = "none"


class Train(Section):
    """Joint training."""

    optimisation: Annotated[Optimisation, _selects("cider", *RECALL)]
    objective: Objective


class Adapt(Section):
    """How a listener gets used to a speaker that stays as it is: one budget for the speakers of all methods."""

    objective: Literal["infonce", "hinge"]
    margin: NonNegative
    temperature: Positive
    negatives: Literal["hardest", "all"]
    optimisation: Annotated[Optimisation, _selects("cider", *RECALL)]


Set = Annotated[int, Field(ge=2)]  # captions of one image that are compared with each other


class Several(Section):
    """How many captions of an image are drawn at random, and how many are taken from a beam of that width."""

    samples: Set
    beams: Set


class Evaluate(Section):
    """Decoding (beam 1: greedy) and what is measured; `several`: also of sets of captions of an image."""

    beam: Count
    metrics: Annotated[tuple[Literal["BLEU", "METEOR", "ROUGE-L", "CIDEr", "SPICE"], ...], *Each]
    splits: Annotated[tuple[Literal["train", "val", "test"], ...], *Each]
    several: Several | None = None


Options = dict[str, tuple[Any, ...]]


def _grids(value: Any) -> tuple[Options, ...]:
    """A method's grids as params.yaml has them: one mapping of options to lists of values, or several of them."""
    grids = value if isinstance(value, list | tuple) else [value]
    if not grids or not all(isinstance(grid, dict) for grid in grids):
        raise ValueError("options and their lists of values, as in {lambda: [0.1, 0.2]}, or a list of such grids")
    for grid in grids:
        for option, values in grid.items():
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"{option} = {values} is not allowed: a list of values, not empty")
            _different(tuple(values))
    return tuple({option: tuple(values) for option, values in grid.items()} for grid in grids)


class Seeds(Section):
    """The seeds of one grid."""

    seed: Annotated[tuple[Natural, ...], *Each]


class Sweep(Section):
    """The grid: method → option → values; every combination with every seed is a cell.

    A method may have several grids; `seed` among a grid's options stands for `seeds`. `seconds`, a cell's on one core,
    is what the time of a grid is foretold from as long as no cell has run here.
    """

    seeds: Annotated[tuple[Natural, ...], *Each]
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
    """The whole file; the blocks of `methods` have a schema each, the signature of their composition."""

    seed: Natural
    draw: dict[Literal["scenes"], Scenes]
    prepare: Prepare
    features: Features
    pretrain: Pretrain
    train: Train
    adapt: Adapt
    methods: dict[Name, dict[str, Any]]
    evaluate: Evaluate
    sweep: Sweep
    report: Report

    @model_validator(mode="after")
    def _a_network_has_images_to_see(self) -> Self:
        if self.prepare.images is None and self.features.network != "imported":
            raise ValueError(
                f"prepare.images = null goes with features.network: imported; {self.features.network} needs the images"
            )
        return self
