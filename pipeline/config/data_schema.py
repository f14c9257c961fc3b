"""The sections of params.yaml about images, captions and features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pipeline.config.reading import suggest_words
from pipeline.ranges import Count, Distinct, Natural, Positive, Seed, Share, Size, SmallCount, require_distinct
from pipeline.section import Name, Section, Text
from pipeline.slices.section_keys import PrepareKeys

if TYPE_CHECKING:
    from pipeline.features.imported import FeatureFormat
    from pipeline.readers.corpus_format import CorpusFormat


class SplitShares(Section):
    """Shares of the images drawn for val and for test, and the seed of the draw."""

    val: Annotated[float, Field(gt=0, lt=1)]
    test: Annotated[float, Field(gt=0, lt=1)]
    seed: Seed

    def _check(self) -> None:
        if self.val + self.test >= 1:
            raise ValueError(f"val {self.val} and test {self.test} leave no training images: lower one of them")


class ExpectedCounts(Section):
    """Expected numbers of images in each split of the annotations, and of words in the vocabulary (UNK included)."""

    train: Count | None = None
    val: Count | None = None
    test: Count | None = None
    words: Count | None = None

    @property
    def images(self) -> dict[str, int]:
        """Return the expected numbers of images by split, without the splits that have no expected number."""
        expected = {"train": self.train, "val": self.val, "test": self.test}
        return {split: number for split, number in expected.items() if number is not None}


def _list_formats() -> dict[str, CorpusFormat]:
    """Return all formats of corpora by name."""
    from pipeline.slices.corpus_formats import FORMATS  # the readers import NumPy and PyArrow

    return {form.name: form for form in FORMATS}


def _check_format(name: str) -> str:
    if name not in _list_formats():
        raise ValueError(f"{name} is no format of a corpus; {suggest_words(name, _list_formats())}")
    return name


class PrepareSettings(PrepareKeys):
    """Paths of a corpus, and rules for its splits, vocabulary, document frequencies and missing images."""

    dataset: Name
    format: Annotated[Text, AfterValidator(_check_format)]
    root: Text
    annotations: Text | Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] | dict[Name, Text]
    images: Text | None = None
    splits: Text | None = None
    shares: SplitShares | None = None
    min_count: Natural | None = None
    max_words: SmallCount
    tokenizer: Text | None = None
    count_words: Literal["train", "all"] = "train"
    document_frequencies: Text | None = None
    count_ngrams: Literal["clipped", "whole"] = "clipped"
    instances: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] | None = None
    expected_counts: ExpectedCounts | None = None
    known_corrupt: Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(require_distinct)] = ()
    max_missing_share: Annotated[float, Field(gt=0, lt=1)] | None = None

    def _check(self) -> None:
        from pipeline.readers.corpus_format import CorpusSource

        form, shares = _list_formats()[self.format], None if self.shares is None else self.shares.model_dump()
        source = CorpusSource(Path(self.root), self.annotations, None, self.splits, shares, self.slice_settings)
        if self.count_ngrams == "whole" and self.document_frequencies is not None:
            raise ValueError(
                "expected count_ngrams whole, which counts n-grams, or document_frequencies, which reads their counts "
                f"({self.document_frequencies}), got both; leave out one"
            )
        if not form.fits(source):
            raise ValueError(form.accepted_settings)
        if self.known_corrupt and not form.may_be_corrupt:
            raise ValueError(f"known_corrupt is not for format {form.name}: leave it out")
        if self.max_missing_share is not None and form.may_miss_images and not self.images:
            raise ValueError("images = null: max_missing_share needs a folder; name one, or remove max_missing_share")
        if self.max_missing_share is not None and not form.may_miss_images:
            raise ValueError(f"max_missing_share is not for format {form.name}: leave it out")
        if self.tokenizer is not None and not form.has_texts:
            raise ValueError(f"tokenizer needs captions as text, and format {form.name} has only words: leave it out")
        if (self.min_count is None) != (form.has_vocabulary(source) or self.tokenizer is not None):
            rule = "min_count is needed where words are counted"
            exception = "a tokenizer and the vocabulary of published annotations replace the count"
            change = "set a number" if self.min_count is None else "set min_count to null"
            raise ValueError(f"{rule}; {exception}: {change}")


class DetectorSettings(Section):
    """A detector of words or objects that this project trains.

    Its training uses `seed` and not the top-level seed; START=n adds n − 1 to `seed`. With
    `horizontal_flip` each training image is mirrored with probability ½.
    """

    epochs: Natural
    width: Size
    learning_rate: Positive
    batch: Annotated[int, Field(ge=2, le=10_000_000)]  # batch normalisation needs two images
    seed: Seed = 0
    horizontal_flip: bool = False


def _list_feature_formats() -> dict[str, FeatureFormat]:
    """Return all formats of imported features by name."""
    from pipeline.slices.feature_formats import FEATURE_FORMATS  # the readers import NumPy

    return FEATURE_FORMATS


def _check_feature_format(name: str) -> str:
    if name not in _list_feature_formats():
        raise ValueError(f"{name} is no format of features; {suggest_words(name, _list_feature_formats())}")
    return name


class ImportedSettings(Section):
    """Paths of features that were extracted elsewhere, and the largest number of regions per image."""

    format: Annotated[Text, AfterValidator(_check_feature_format)]
    regions: Text | Annotated[tuple[Text, ...], *Distinct]
    pooled: Text | None = None
    max_regions: Size

    def _check(self) -> None:
        form = _list_feature_formats()[self.format]
        if not form.fits(self.regions):
            raise ValueError(f"format {self.format} takes regions: {form.accepted_settings}; correct them")


RGB = Field(strict=False, min_length=3, max_length=3)  # red, green and blue
Means = Annotated[tuple[Annotated[float, Field(ge=-1000, le=1000)], ...], RGB]
Deviations = Annotated[tuple[Annotated[float, Field(gt=0, le=1000)], ...], RGB]


class RegionLimits(Section):
    """Number of a detector's regions: `fixed`, or those above `threshold`, from `min_boxes` to `max_boxes`."""

    fixed: Size | None = None
    min_boxes: Size | None = None
    max_boxes: Size | None = None
    threshold: Share | None = None

    def _check(self) -> None:
        given = [value is not None for value in (self.fixed, self.min_boxes, self.max_boxes, self.threshold)]
        if given not in ([True, False, False, False], [False, True, True, True]):
            raise ValueError(
                "expected {fixed: 36} or {min_boxes: 10, max_boxes: 100, threshold: 0.2}, for example, got other keys: "
                "correct them"
            )
        if self.min_boxes is not None and self.max_boxes is not None and self.min_boxes > self.max_boxes:
            raise ValueError(f"min_boxes {self.min_boxes} is more than max_boxes {self.max_boxes}: lower min_boxes")


MAIN = "main"  # name of the features of speakers; listeners and judges may use another set


class FeatureSettings(Section):
    """The network that extracts features, and its settings.

    Networks for images are fasterrcnn_resnet50_fpn_v2, torchvision/… (classifiers), open_clip/….… (network and
    weights), and any network of timm. hub/… is a captioner, CLIP or SigLIP of the library transformers. word_detector
    and, for drawn images, object_detector are trained here. facts, for drawn scenes, are the features of a network
    without errors. `imported` takes features from elsewhere.

    With `frames`, images are films, and `frames` is the number of evenly spread frames per film. With
    `frames_per_second`, `frames` is the maximum per film. `batch` counts frames. The film's vector is the mean of its
    frames' vectors. With `vector: times` the vectors are concatenated, which keeps their order.

    `detector` describes a network that is trained here. With `weights: hub`, it is trained only where the weights
    of a network of another library than transformers cannot be downloaded. It has no effect where `weights` is a file.
    """

    network: Text
    weights: Text | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    image_size: Size | None = None
    batch: Count | None = None
    mean: Means | None = None
    std: Deviations | None = None
    pca_dim: Size | None = None
    grid_size: SmallCount | None = None
    horizontal_flip: bool = False
    vector: Literal["mean_and_max", "times"] | None = None
    frames: Annotated[int, Field(ge=1, le=64)] | None = None
    frames_per_second: Positive | None = None
    boxes: RegionLimits | None = None
    detector: DetectorSettings | None = None
    imported: ImportedSettings | None = None

    def _check(self) -> None:
        trained_here = self.network in ("word_detector", "object_detector")
        has_boxes = self.network.startswith("fasterrcnn_")
        if (self.network == "imported") != (self.imported is not None):
            raise ValueError(
                f"network imported, and no other, takes an imported: block; got network {self.network}: "
                "add or remove the block"
            )
        if self.imported is not None or self.network == "facts":
            for name in type(self).model_fields:
                if name not in ("network", "imported") and getattr(self, name):
                    raise ValueError(f"network {self.network} takes no {name}, since it extracts nothing: leave it out")
            return
        if self.batch is None or (self.image_size is None and not self.network.startswith("hub/")):
            needed = "batch" if self.network.startswith("hub/") else "image_size and batch"
            raise ValueError(f"network {self.network} needs {needed}: set what is null")
        if trained_here and (self.weights is not None or self.detector is None):
            raise ValueError(f"network {self.network} takes weights: null and a detector: block: correct these keys")
        if trained_here and (self.mean or self.std or self.options):
            takes = "mean: null, std: null and options: {}"
            raise ValueError(f"network {self.network} takes {takes}, since it is trained here: set these values")
        if not trained_here and self.weights is None:
            raise ValueError(f"network {self.network} needs weights: hub or a safetensors file; set one of them")
        if has_boxes and (self.boxes is None or self.grid_size is not None):
            raise ValueError(
                f"network {self.network} needs boxes, such as {{fixed: 36}}, and grid_size: null: set both"
            )
        if not has_boxes and self.boxes is not None:
            raise ValueError(f"boxes are for networks fasterrcnn_…, got network {self.network}: set boxes to null")
        if self.vector == "mean_and_max" and (trained_here or has_boxes or self.network.startswith("hub/")):
            raise ValueError(f"network {self.network} does not take vector: mean_and_max: set vector to null")
        self._check_frames()

    def _check_frames(self) -> None:
        if self.frames is None and (self.frames_per_second is not None or self.vector == "times"):
            raise ValueError("frames_per_second and vector: times are for films: set frames")
        if self.frames_per_second is not None and self.vector == "times":
            raise ValueError("vector: times needs equally many frames of every film: set frames_per_second to null")
        if self.frames_per_second is not None and self.network == "object_detector":
            raise ValueError("network object_detector takes evenly spread frames: set frames_per_second to null")
        if self.frames is not None and (
            self.horizontal_flip or (self.detector is not None and self.detector.horizontal_flip)
        ):
            raise ValueError("horizontal_flip must be false for films: their captions name directions of motion")
        if self.frames is not None and self.network.startswith("hub/"):
            raise ValueError(f"network {self.network} takes one image: set frames to null")
