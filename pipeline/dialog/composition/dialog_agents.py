"""Agents of visual dialog, and the objective that combines likelihood with a discriminator's score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.method import SPEAKER, SPEAKER_ONLY, Method, Term, UpdateSchedule
from pipeline.dialog.composition.answer_preference import PairwiseScore
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.errors import UserError
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.protocols import Estimator, Score
from pipeline.scores.naturalness import HumanCaption

InitialEncoder = Literal["own", "discriminator"]


@dataclass(frozen=True)
class DialogAgents:
    """Answering speaker and discriminator; each has its own encoder of image, history and question."""

    speaker: DialogDecoder
    listener: Discriminator

    @property
    def roles(self) -> dict[str, nn.Module]:
        """Return the networks by role, as `Method` expects them."""
        return {"speaker": self.speaker, "listener": self.listener}


def initialise_encoder(agents: DialogAgents, encoder: InitialEncoder) -> None:
    """Copy the discriminator's encoder and word embeddings to the speaker if `encoder` is "discriminator".

    Raises UserError where the two encoders differ in type or size, or the word embeddings in size.
    """
    if encoder == "own":
        return
    speaker, listener = agents.speaker, agents.listener
    for name, target, source in (
        ("encoder", speaker.encoder, listener.encoder),
        ("word embeddings", speaker.word, listener.word),
    ):
        try:
            target.load_state_dict(source.state_dict())
        except RuntimeError:
            raise UserError(
                f"encoder: discriminator: the speaker's {name} and the listener's differ in type or size; give both "
                "blocks of pretrain the same encoder, layer_norm, region_positions, round_positions, word_dim and "
                "hidden_dim"
            ) from None


def discriminator_guided(
    agents: DialogAgents,
    alpha: float,
    estimator: Estimator,
    schedule: UpdateSchedule = SPEAKER_ONLY,
    discriminator_terms: tuple[Term, ...] = (),
    norm_penalty: float = 0.0,
) -> Method:
    """Build the speaker's objective: the discriminator's preference score + α · likelihood.

    `estimator` computes the gradient of the preference score. `discriminator_terms` train the discriminator where
    `schedule` includes it. `norm_penalty` is the weight of the penalty in `PairwiseScore`.
    """
    preference: Score = PairwiseScore(agents.listener, norm_penalty=norm_penalty)
    terms = (
        Term("discriminability", 1.0, preference, estimator, SPEAKER),
        Term("likelihood", alpha, HumanCaption(), ScoreFunction(TeacherForcing()), SPEAKER),
        *discriminator_terms,
    )
    return Method(agents.roles, terms, schedule)
