"""Settings of the evaluation of captions."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field

from pipeline.evaluation.judge_names import OWN
from pipeline.evaluation.set_sizes import SetSizes
from pipeline.metrics.registry import MetricName
from pipeline.ranges import Distinct, SmallCount, Temperature
from pipeline.section import FromMapping, Name, Section


class GallerySettings(Section):
    """Hard gallery of an image: drawn images with similar facts, or `images` images, the image and its nearest ones.

    `similarity`: facts, features (the pooled features, which judges also encode), or the name of a retriever in
    pretrain.
    """

    similarity: Name
    images: Annotated[int, Ge(2), Le(10_000_000)] | None = None

    def _check(self) -> None:
        if (self.similarity == "facts") != (self.images is None):
            raise ValueError(
                "similarity facts takes no images, and any other similarity needs images, found "
                f"{self.similarity} with images: {self.images}; set or remove images"
            )

    @property
    def title(self) -> str:
        """Return the name of the hard gallery in the protocol's signature."""
        return self.similarity if self.images is None else f"{self.similarity}:{self.images}"


class RerankSettings(Section):
    """Reranking: a listener selects one of `samples` captions of each image.

    The logits of the samples are divided by `temperature`: below 1, samples are more probable, and repeat more
    often. `score`: the similarity of caption and image, alone or minus the caption's highest similarity to another
    image of the split. `listener`: the method's own listener, or the name of a listener in pretrain.
    """

    samples: SmallCount
    temperature: Temperature = 1.0
    score: Literal["margin", "similarity"] = "margin"
    listener: Name = OWN


class EvaluationSettings(Section):
    """Decoding (beam 1: greedy) and metrics. `multi_sample` also evaluates sets of captions per image.

    With `no_repeat_ngram_size` no caption repeats an n-gram of that many words.

    `judges` maps names to kinds of judges or to names in pretrain. `baselines` maps a method to the kinds of baseline
    captions that are evaluated with the method's captions.
    """

    beam: SmallCount
    no_repeat_ngram_size: SmallCount | None = None
    metrics: Annotated[tuple[MetricName, ...], *Distinct]
    judges: dict[Name, Name]
    hard_gallery: GallerySettings | None = None
    baselines: dict[Name, Annotated[tuple[Name, ...], *Distinct]] = Field(default_factory=dict)
    multi_sample: Annotated[SetSizes, FromMapping] | None = None
