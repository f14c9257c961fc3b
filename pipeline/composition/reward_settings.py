"""Settings of the reward models."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pipeline.ranges import Count, Positive, Size, SmallCount, require_distinct
from pipeline.section import Name, Section


class RetrieverSettings(Section):
    """Settings of the reward models for methods that take `rewards`: a fixed retriever, and two heads on its vectors.

    `model`, `speaker`: names in pretrain of the retriever and of the speaker. `temperature`: divisor of the cosines.
    `hard_negative_ranks`: ranks of the training images nearest to an image that serve as negatives besides the images
    of the batch. `beam`, `no_repeat_ngram_size`: the speaker's search for the rewarded captions. `hidden_dims`: layer
    sizes of the heads. `judge`: the name in pretrain of a listener that also retrieves the validation images but gives
    no reward; None: no judge.
    """

    model: Name
    speaker: Name
    judge: Name | None = None
    temperature: Positive
    hard_negative_ranks: Annotated[tuple[Count, ...], Field(strict=False), AfterValidator(require_distinct)] = ()
    hidden_dims: Annotated[tuple[Size, ...], Field(strict=False)] = (512, 256)
    beam: SmallCount = 5
    no_repeat_ngram_size: SmallCount | None = 3
