"""How good a discriminator of visual dialog finds an answer: its product with what was asked, against others'."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.models.discriminator import Discriminator
from pipeline.numbers import Numbers
from pipeline.protocols import Rollouts, Score
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class Chosen:
    """log p of the human answer among candidates, by a softmax over the discriminator's scores.

    That is minus Eq. 4 of Lu et al. 2017, log(1 + Σ exp(negative − human)), to the last digit. The negatives are all
    other options, or `options` of them (D-NP), and `others`, human answers to other questions of the batch; with
    `adversary` also what the message says (GAN2), where it is not the human answer. No negative has the human answer's
    words. Negatives are drawn uniformly, none twice, as many as that says, or all where there are fewer. The draw
    depends on the seed and the step (`among`). `norms`: the weight of the squared lengths of encodings and answers.
    """

    discriminator: Discriminator
    options: int | None = None
    others: int = 0
    adversary: bool = False
    norms: float = 0.0
    numbers: Numbers | None = None  # where draws come from; None: torch's own stream
    differentiable = True

    def among(self, rollouts: Rollouts) -> Score:
        """The score with this step's random numbers."""
        return replace(self, numbers=rollouts.numbers("negatives"))

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        asked, encoding = batch.asked, self.discriminator.see(batch)  # (N, H)
        assert asked is not None
        answers = self.discriminator.read(asked.answers)  # (U, H)
        human = asked.options.gather(1, asked.truth.unsqueeze(1))  # (N, 1)
        numbers = Numbers(batch, None) if self.numbers is None else self.numbers
        of_batch = human.T.expand(len(human), -1)  # (N, N): human answers of the batch
        rivals = torch.cat(
            [self._options(asked.options, human, numbers), _drawn(of_batch, human, self.others, numbers)], 1
        )
        products = encoding @ answers.T  # (N, U)
        scores = products.gather(1, rivals).masked_fill(rivals == human, -torch.inf)
        own = products.gather(1, human)
        if self.adversary:
            said = (encoding[message.images] * self.discriminator.hear(message)).sum(1)
            said = said.masked_fill(is_human(message, batch), -torch.inf)
            scores = torch.cat([scores, said.view(len(batch), -1)], 1)
        size = self.norms * (encoding.square().sum(1) + answers.square().sum(1).mean()) if self.norms else 0.0
        found = torch.cat([own, scores], 1).log_softmax(1)[:, 0] - size
        return found[message.images]

    def _options(self, options: Tensor, human: Tensor, numbers: Numbers) -> Tensor:
        return options if self.options is None else _drawn(options, human, self.options, numbers)


def _drawn(answers: Tensor, human: Tensor, count: int, numbers: Numbers) -> Tensor:
    """(N, ≤ count): of each row of `answers` (N, M) some that are not `human` (N, 1), drawn uniformly, no place twice.

    Where a row has fewer, `human` stands in their place.
    """
    if not count:
        return answers[:, :0]
    other = answers != human
    order = numbers.like(other.float()).masked_fill(~other, -1.0)
    return answers.gather(1, order.topk(min(count, answers.shape[1]), 1).indices)


@dataclass(frozen=True)
class Preferred:
    """log σ(s(answer) − s(human answer)): minus the loss of one pair, Eq. 5 of Lu et al. 2017.

    `reverse`: of the human answer against the answer, 0 where they are the same, for a discriminator that learns to
    tell them apart (GAN1; −L_G, as the paper prints it, has no bound). `norms`: the weight of the squared length of
    what was said.
    """

    discriminator: Discriminator
    reverse: bool = False
    norms: float = 0.0
    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        encoding = self.discriminator.see(batch)[message.images]
        heard = self.discriminator.hear(message)
        human = self.discriminator.read(batch.captions)[message.images]
        gain = (encoding * heard).sum(1) - (encoding * human).sum(1)
        if self.reverse:
            return F.logsigmoid(-gain) * ~is_human(message, batch)
        return F.logsigmoid(gain) - (self.norms * heard.square().sum(1) if self.norms else 0.0)


def is_human(message: Message, batch: Batch) -> Tensor:
    """(N,) bool: which answers have the human answer's words."""
    said, human = message.tokens, batch.captions[message.images]
    steps = max(said.shape[1], human.shape[1])
    said, human = (F.pad(tokens, (0, steps - tokens.shape[1])) for tokens in (said, human))
    return (said == human).all(1)
