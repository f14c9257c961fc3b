"""Does the listener find the image from the caption, and the caption from the image, among those of the batch?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.listener import Listener
from pipeline.numbers import Numbers
from pipeline.protocols import Score
from pipeline.runtime import ranks
from pipeline.types import Batch, Message


def by_encoder(listener: Listener, message: Message, batch: Batch) -> Tensor:
    """(P, S, B, B) cosines: [p, s, i, k] of caption s of image i with image k by the p-th of the listener's encoders,
    B images of the whole batch."""
    heard = ranks.gathered(listener.hear(message).view(len(batch), message.samples, -1)).transpose(0, 1)  # (S, B, P·H)
    seen, parts = ranks.gathered(listener.see(batch.pooled)), listener.parts
    return parts * torch.stack([h @ v.T for h, v in zip(heard.chunk(parts, 2), seen.chunk(parts, 1), strict=True)])


def similarities(listener: Listener, message: Message, batch: Batch) -> Tensor:
    """(S, B, B) cosines: [s, i, k] of caption s of image i with image k, B images of the whole batch."""
    return by_encoder(listener, message, batch).mean(0)


def _per_caption(by_sample: Tensor) -> Tensor:
    return ranks.own(by_sample, 1).T.flatten()  # (S, B) → (b·S,) of the b images here, image-major as messages are


@dataclass(frozen=True)
class Hinge:
    """Minus the sum of both hinges (PSST Eq. 4; Faghri et al. 2018): against other images, and other captions.

    `negatives`: the hardest of the batch, or the mean over all of it.
    """

    listener: Listener
    margin: float = 0.2
    negatives: Literal["hardest", "all"] = "hardest"
    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return _per_caption(-self.losses(similarities(self.listener, message, batch)))

    def losses(self, cosines: Tensor) -> Tensor:
        """(S, B) losses from `cosines` (S, B, B); a batch of one image has nothing to be mistaken for and gives 0."""
        own = cosines.diagonal(dim1=1, dim2=2)  # (S, B)
        others = ~torch.eye(cosines.shape[-1], dtype=torch.bool, device=cosines.device)
        images = F.relu(self.margin - own.unsqueeze(2) + cosines) * others
        captions = F.relu(self.margin - own.unsqueeze(1) + cosines) * others
        if self.negatives == "hardest":
            return images.amax(2) + captions.amax(1)
        return (images.sum(2) + captions.sum(1)) / max(1, cosines.shape[-1] - 1)


@dataclass(frozen=True)
class InfoNCE:
    """Log-probability of the image given the caption plus that of the caption given the image, among the batch.

    Cosines are divided by `temperature` (van den Oord et al. 2018; CLIP). Of a pair each encoder has its own, and the
    score is their mean: each learns all it can, and together they find more than if they had learned as one.
    """

    listener: Listener
    temperature: float = 0.07
    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        logits = by_encoder(self.listener, message, batch) / self.temperature
        image = logits.log_softmax(3).diagonal(dim1=2, dim2=3)
        caption = logits.log_softmax(2).diagonal(dim1=2, dim2=3)
        return _per_caption((image + caption).mean(0))


class Recovering(nn.Module):
    """The hardest-negative hinge that does not stay in its collapse, where every cosine is alike (loss 2·margin).

    It begins with the hinge over all negatives for `warmup` steps; and when the mean hardest loss of a batch has
    lain within `width` of 2·margin for `patience` steps, it goes back to all negatives for `steps` more. (Collapse:
    DiscCaptioning#11, vsepp#27, where it shows as a loss stuck at 2·B·margin.) Evaluating does not count as a step.
    """

    differentiable = True
    collapsed: Tensor
    easy: Tensor
    recoveries: Tensor

    def __init__(self, hinge: Hinge, warmup: int, patience: int, steps: int, width: float = 0.02) -> None:
        super().__init__()
        self.hardest = hinge
        self.all = Hinge(hinge.listener, hinge.margin, "all")
        self.patience, self.steps, self.width = patience, steps, width
        self.register_buffer("collapsed", torch.zeros((), dtype=torch.int64))  # steps in the plateau, in a row
        self.register_buffer("easy", torch.tensor(warmup))  # steps left over all negatives
        self.register_buffer("recoveries", torch.zeros((), dtype=torch.int64))

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        cosines = similarities(self.hardest.listener, message, batch)
        hardest = self.hardest.losses(cosines)
        losses = torch.where(self.easy > 0, self.all.losses(cosines), hardest)
        if torch.is_grad_enabled():
            self._count(hardest.detach().mean() / (2 * self.hardest.margin))
        return _per_caption(-losses)

    def _count(self, level: Tensor) -> None:
        plateau = (level - 1).abs() < self.width
        self.collapsed.copy_(torch.where(plateau & (self.easy == 0), self.collapsed + 1, 0))
        recover = self.collapsed >= self.patience
        self.recoveries += recover
        self.easy.copy_(torch.where(recover, self.steps, (self.easy - 1).clamp(min=0)))


class Dropping(nn.Module):
    """A score of captions and images of which a learning listener gets a part, so that it learns not to need the rest.

    Of image vectors a share `vector` of the numbers is 0, the others being scaled up; of the words a share `words` is
    UNK, the id `unk`. The numbers come from torch's own stream, by the caption's place in the whole batch.
    """

    differentiable = True

    def __init__(self, score: Score, vector: float, words: float, unk: int) -> None:
        super().__init__()
        self.score, self.vector, self.words, self.unk = score, vector, words, unk

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        if torch.is_grad_enabled():
            numbers, keep = Numbers(batch, None), 1 - self.vector
            pooled = batch.pooled * (numbers.like(batch.pooled) < keep) / keep
            lost = (numbers.like(message.tokens.to(pooled.dtype)) < self.words) & (message.tokens > 0)
            batch = replace(batch, pooled=pooled)
            message = replace(message, tokens=message.tokens.masked_fill(lost, self.unk))
        return self.score(message, batch)
