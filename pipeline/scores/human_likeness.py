"""Human likeness: a discriminator's log-odds and probability that a human wrote the caption."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.func import functional_call

from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.retriever import Retriever
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class HumanLogOdds:
    """Discriminator's log-odds that a human wrote the caption, used in the discriminator's training objective."""

    retriever: Retriever
    discriminator: CaptionClassifier

    @property
    def differentiable(self) -> bool:
        return self.retriever.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        images, captions = self.retriever.encode_image(batch)[message.images], self.retriever.encode_text(message)
        log_odds: Tensor = self.discriminator(images, captions)
        return log_odds


@dataclass(frozen=True)
class HumanProbability(HumanLogOdds):
    """Probability that a human wrote the caption (WTF-RL's r_regu), without a gradient to the discriminator."""

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        parameters = {name: value.detach() for name, value in self.discriminator.named_parameters()}
        vectors = self.retriever.encode_image(batch)[message.images], self.retriever.encode_text(message)
        log_odds: Tensor = functional_call(self.discriminator, parameters, vectors)
        return log_odds.sigmoid()
