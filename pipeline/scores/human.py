"""Does a discriminator take the caption for a person's?"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.func import functional_call

from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.retriever import Retriever
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class LogOdds:
    """The discriminator's log-odds that a person wrote the caption: what it learns by."""

    retriever: Retriever
    discriminator: CaptionClassifier

    @property
    def differentiable(self) -> bool:
        return self.retriever.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return self.discriminator(self.retriever.look(batch)[message.images], self.retriever.hear(message))


@dataclass(frozen=True)
class Human(LogOdds):
    """The probability that a person wrote it (WTF-RL's r_regu); the discriminator learns nothing from saying so."""

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        fixed = {name: value.detach() for name, value in self.discriminator.named_parameters()}
        vectors = self.retriever.look(batch)[message.images], self.retriever.hear(message)
        odds: Tensor = functional_call(self.discriminator, fixed, vectors)
        return odds.sigmoid()
