"""Discriminability: scores of the listener's retrieval of images and captions within the batch, and input dropout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.listener import Listener
from pipeline.protocols import Score
from pipeline.random import BatchRandom
from pipeline.runtime import ranks
from pipeline.types import Batch, Message


def compute_encoder_similarities(listener: Listener, message: Message, batch: Batch) -> Tensor:
    """Compute cosines (P, S, B, B) by each of the listener's P encoders, for the B images of the whole batch.

    Element [p, s, i, k] is the cosine of caption s of image i with image k by encoder p.
    """
    own = listener.encode_text(message).view(len(batch), message.samples, -1)
    captions = ranks.gather_with_gradient(own).transpose(0, 1)  # (S, B, P·H)
    images, parts = ranks.gather_with_gradient(listener.encode_image(batch.pooled)), listener.parts
    return parts * torch.stack([h @ v.T for h, v in zip(captions.chunk(parts, 2), images.chunk(parts, 1), strict=True)])


def compute_similarities(listener: Listener, message: Message, batch: Batch) -> Tensor:
    """Compute cosines (S, B, B) over the whole batch: [s, i, k] is caption s of image i with image k."""
    return compute_encoder_similarities(listener, message, batch).mean(0)


def _arrange_per_caption(values: Tensor) -> Tensor:
    """Return (b·S,), image-major like messages: the elements of `values` (S, B) for this rank's b images."""
    return ranks.get_own_part(values, 1).T.flatten()


@dataclass(frozen=True)
class Hinge:
    """Minus two hinge losses: over negative images and over negative captions (PSST Eq. 4; Faghri et al. 2018).

    `negatives` selects the loss of the batch's hardest negative, or the mean of the losses of all negatives.
    """

    listener: Listener
    margin: float = 0.2
    negatives: Literal["hardest", "all"] = "hardest"
    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return _arrange_per_caption(-self.losses(compute_similarities(self.listener, message, batch)))

    def losses(self, cosines: Tensor) -> Tensor:
        """Compute losses (S, B) from `cosines` (S, B, B); a batch of one image has no negatives and gives 0."""
        own = cosines.diagonal(dim1=1, dim2=2)  # (S, B)
        others = ~torch.eye(cosines.shape[-1], dtype=torch.bool, device=cosines.device)
        images = F.relu(self.margin - own.unsqueeze(2) + cosines) * others
        captions = F.relu(self.margin - own.unsqueeze(1) + cosines) * others
        if self.negatives == "hardest":
            return images.amax(2) + captions.amax(1)
        return (images.sum(2) + captions.sum(1)) / max(1, cosines.shape[-1] - 1)


@dataclass(frozen=True)
class InfoNCE:
    """Log-probability of the image given the caption, plus that of the caption given the image, within the batch.

    Cosines are divided by `temperature` (van den Oord et al. 2018; CLIP). With the encoder `pair`, each encoder has its
    own score, and the result is the mean of these scores. Recall is higher than with a score of the mean cosine.
    """

    listener: Listener
    temperature: float = 0.07
    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        logits = compute_encoder_similarities(self.listener, message, batch) / self.temperature
        image = logits.log_softmax(3).diagonal(dim1=2, dim2=3)
        caption = logits.log_softmax(2).diagonal(dim1=2, dim2=3)
        return _arrange_per_caption((image + caption).mean(0))


class CollapseRecovery(nn.Module):
    """Hinge on the hardest negative with recovery from collapse, in which all cosines are equal (loss 2·margin).

    The first `warmup` steps use all negatives. Then, when the mean hardest loss has stayed within a relative `width` of
    2·margin for `patience` steps, the next `steps` steps use all negatives again. A call without gradients, as in
    evaluation, does not count as a step.
    GitHub issues report the collapse as a loss constant at 2·B·margin: DiscCaptioning#11, vsepp#27.
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
        self.register_buffer("collapsed", torch.zeros((), dtype=torch.int64))  # consecutive steps in the plateau
        self.register_buffer("easy", torch.tensor(warmup))  # remaining steps with all negatives
        self.register_buffer("recoveries", torch.zeros((), dtype=torch.int64))

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        cosines = compute_similarities(self.hardest.listener, message, batch)
        hardest = self.hardest.losses(cosines)
        losses = torch.where(self.easy > 0, self.all.losses(cosines), hardest)
        if torch.is_grad_enabled():
            self._count(hardest.detach().mean() / (2 * self.hardest.margin))
        return _arrange_per_caption(-losses)

    def _count(self, level: Tensor) -> None:
        plateau = (level - 1).abs() < self.width
        self.collapsed.copy_(torch.where(plateau & (self.easy == 0), self.collapsed + 1, 0))
        recover = self.collapsed >= self.patience
        self.recoveries += recover
        self.easy.copy_(torch.where(recover, self.steps, (self.easy - 1).clamp(min=0)))


class InputDropout(nn.Module):
    """Dropout on the inputs of `score`, as regularisation of a listener, in calls with gradients.

    Each element of an image vector becomes 0 with the probability `vector`. The others are divided by 1 − `vector`.
    Each word becomes UNK, the id `unk`, with the probability `words`; EOS stays. Random numbers come from torch's
    default generator, for the whole batch.
    """

    differentiable = True

    def __init__(self, score: Score, vector: float, words: float, unk: int) -> None:
        super().__init__()
        self.score, self.vector, self.words, self.unk = score, vector, words, unk

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        if torch.is_grad_enabled():
            batch_random, keep = BatchRandom(batch, None), 1 - self.vector
            pooled = batch.pooled * (batch_random.rand_like(batch.pooled) < keep) / keep
            dropped = (batch_random.rand_like(message.tokens.to(pooled.dtype)) < self.words) & (message.tokens > 0)
            batch = replace(batch, pooled=pooled)
            message = replace(message, tokens=message.tokens.masked_fill(dropped, self.unk))
        return self.score(message, batch)
