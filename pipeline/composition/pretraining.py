"""Methods of pretraining and adaptation: speakers by maximum likelihood, listeners on human or speakers' captions."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from pipeline.channels.hard import Multinomial
from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.method import LISTENER_ONLY, SPEAKER_ONLY, Method, Term
from pipeline.estimators.surrogate import Detached, Reduction, ScoreFunction
from pipeline.models.decoder import Decoder
from pipeline.protocols import Score
from pipeline.scores.naturalness import HumanCaption


def build_teacher_forcing(
    agents: Mapping[str, nn.Module], scheduled: ScheduledSampling | None = None, image_dropout: float = 0.0
) -> Method:
    """Build maximum-likelihood training: the score-function surrogate of the score 1 on forced tokens is cross-entropy.

    `image_dropout` is the probability that the speaker's null image replaces an image.
    """
    if image_dropout:
        speaker = agents["speaker"]
        assert isinstance(speaker, Decoder)
        speaker.add_null_image()
    likelihood = Term("likelihood", 1.0, HumanCaption(), ScoreFunction(TeacherForcing(scheduled)))
    return Method(agents, (likelihood,), SPEAKER_ONLY, image_dropout=image_dropout)


def build_listener_matching(listener: nn.Module, score: Score, reduction: Reduction = "mean") -> Method:
    """Build listener training that matches the human text of a batch with its images (VSE++, Faghri et al. 2018)."""
    term = Term("matching", 1.0, score, Detached(TeacherForcing(requires_grad=False), reduction))
    return Method({"listener": listener}, (term,), LISTENER_ONLY)


def build_listener_adaptation(
    speaker: Decoder, listener: nn.Module, score: Score, reduction: Reduction = "mean"
) -> Method:
    """Build listener training on captions sampled from a frozen speaker (PSST §7.1)."""
    agents = {"speaker": speaker, "listener": listener}
    return Method(agents, (Term("matching", 1.0, score, Detached(Multinomial(), reduction)),), LISTENER_ONLY)
