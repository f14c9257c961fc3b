"""Settings of pretraining, and of a listener's adaptation."""

from __future__ import annotations

from typing import Annotated, Literal

from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.models.model_settings import SpeakerSettings
from pipeline.ranges import Count, DropoutRate, Natural, NonNegative, Positive, Size
from pipeline.section import FromMapping, Name, Section


class MatchingSettings(Section):
    """The objective of a listener that matches captions and images; `reduction` is over the batch."""

    objective: Literal["infonce", "hinge"]
    margin: NonNegative
    temperature: Positive
    negatives: Literal["hardest", "all"]
    reduction: Literal["mean", "sum"] = "mean"


class RecoverySettings(Section):
    """Recovery of a collapsed listener, whose cosines are all equal.

    Recovery begins after `patience` steps of collapse. It uses all negatives for `steps` steps.
    """

    patience: Count
    steps: Count


class ListenerSettings(MatchingSettings):
    """A listener on one set of features, and the objective of its pretraining.

    `vector_dropout` is the dropout probability of the image vector's elements, and `word_dropout` that of words.
    """

    features: Name
    encoder: Literal["gru", "bag", "pair"]
    word_dim: Size
    hidden_dim: Size
    warmup_epochs: Natural
    collapse_recovery: RecoverySettings | None = None
    vector_dropout: DropoutRate = 0.0
    word_dropout: DropoutRate = 0.0


class SpeakerPretraining(SpeakerSettings):
    """A speaker and its pretraining by likelihood. `image_dropout` also trains a null image for guidance."""

    scheduled_sampling: Annotated[ScheduledSampling, FromMapping] | None = None
    image_dropout: DropoutRate = 0.0
