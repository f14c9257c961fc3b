"""Before joint training: speakers by maximum likelihood, listeners on captions of people or of a speaker."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from pipeline.channels.forced import Forced, ScheduledSampling
from pipeline.channels.words import Multinomial
from pipeline.composition.method import LISTENER_ONLY, SPEAKER_ONLY, Method, Term
from pipeline.estimators.surrogate import Detached, Reduction, ScoreFunction
from pipeline.models.decoder import Decoder
from pipeline.protocols import Score
from pipeline.scores.naturalness import Given


def teacher_forcing(
    agents: Mapping[str, nn.Module], scheduled: ScheduledSampling | None = None, image_dropout: float = 0.0
) -> Method:
    """Maximum likelihood: the score-function surrogate of the score 1 over forced words is the cross-entropy.

    With `image_dropout` the speaker learns a null image from that share of the captions.
    """
    if image_dropout:
        speaker = agents["speaker"]
        assert isinstance(speaker, Decoder)
        speaker.add_null_image()
    likelihood = Term("likelihood", 1.0, Given(), ScoreFunction(Forced(scheduled)))
    return Method(agents, (likelihood,), SPEAKER_ONLY, image_dropout=image_dropout)


def matching(listener: nn.Module, score: Score, reduction: Reduction = "mean") -> Method:
    """A listener learns to match human captions and images (VSE++, Faghri et al. 2018), or answers and questions."""
    term = Term("matching", 1.0, score, Detached(Forced(learns=False), reduction))
    return Method({"listener": listener}, (term,), LISTENER_ONLY)


def frozen_speaker(speaker: Decoder, listener: nn.Module, score: Score, reduction: Reduction = "mean") -> Method:
    """The listener learns on what the speaker says, and the speaker stays as it is (§7.1)."""
    agents = {"speaker": speaker, "listener": listener}
    return Method(agents, (Term("matching", 1.0, score, Detached(Multinomial(), reduction)),), LISTENER_ONLY)
