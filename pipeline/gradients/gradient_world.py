"""World small enough to enumerate every caption, so that the gradient of an expected score is exact.

With few words, and few words per caption, there are few captions. The expected score is a sum of probability × score
over the captions of all images jointly, differentiated by autograd. The sum is joint because the hinge compares
an image's caption with the captions of other images. Speaker, listener and scores are the pipeline's own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.unroll import teacher_force
from pipeline.protocols import Score
from pipeline.types import Batch, Message, make_caption_mask


@dataclass(frozen=True)
class GradientWorld:
    """Agents without dropout, in double precision if captions are enumerated, and their batch of images."""

    speaker: Decoder
    listener: Listener
    batch: Batch

    def captions(self) -> Tensor:
        """Return all captions, int64 (C, T), each ended by EOS or by its T-th word."""
        words, steps = range(1, self.speaker.vocabulary + 1), self.speaker.max_words
        ended = [(*caption, 0) for length in range(steps) for caption in itertools.product(words, repeat=length)]
        captions = [*ended, *itertools.product(words, repeat=steps)]
        return torch.tensor([(*caption, *[0] * (steps - len(caption))) for caption in captions])

    def log_probs(self) -> Tensor:
        """Return the speaker's log-probability of each caption for each image (B, C); differentiable."""
        captions, images = self.captions(), torch.arange(len(self.batch))
        rows = images.repeat_interleave(len(captions))
        batch, encoded = self.batch, self.speaker.encode_image(self.batch)
        pairs = Batch(
            rows, batch.pooled[rows], batch.regions[rows], batch.region_mask[rows], captions.repeat(len(images), 1)
        )
        log_probs = teacher_force(self.speaker, pairs, encoded=encoded[rows]).log_probs
        assert log_probs is not None
        return log_probs.sum(1).view(len(images), -1)

    def outcomes(self) -> Tensor:
        """Return indices into `captions()`, int64 (S, B): a caption for each image, in all S = C^B combinations."""
        return torch.cartesian_prod(*[torch.arange(len(self.captions()))] * len(self.batch)).view(-1, len(self.batch))

    @property
    def weights(self) -> list[nn.Parameter]:
        """Return the parameters with respect to which gradients are computed: all parameters of the speaker."""
        return list(self.speaker.parameters())

    def exact_gradient(self, score: Score) -> Tensor:
        """Return the gradient (P,) of the expected score of a caption, averaged over the images."""
        outcomes, log_probs = self.outcomes(), self.log_probs()
        tokens = self.captions()[outcomes.T.flatten()]  # image-major, as messages are
        images = torch.arange(len(self.batch)).repeat_interleave(len(outcomes))
        with torch.no_grad():
            value = score(Message(tokens, make_caption_mask(tokens), images, len(outcomes)), self.batch)
        probability = log_probs.gather(1, outcomes.T).sum(0).exp()  # (S,)
        expected = (probability * value.view(len(self.batch), -1).mean(0)).sum()
        return self.gradient(expected)

    def gradient(self, value: Tensor) -> Tensor:
        """Return the gradient (P,) of a scalar with respect to `weights`, concatenated; 0 for unused weights."""
        gradients = torch.autograd.grad(value, self.weights, allow_unused=True)
        pairs = zip(gradients, self.weights, strict=True)
        return torch.cat(
            [(torch.zeros_like(weight) if gradient is None else gradient).flatten() for gradient, weight in pairs]
        )


def draw_world(
    images: int,
    vocabulary: int,
    max_words: int,
    seed: int,
    size: int = 4,
    contrast: float = 3.0,
    dtype: torch.dtype = torch.float64,
) -> GradientWorld:
    """Return a world of random images, captions and weights.

    `contrast` multiplies the weights of the speaker's output layer, but not its biases.
    """
    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        speaker = Att2in(vocabulary, 3, words=size, hidden=size, attention=size, dropout=0.0, max_words=max_words)
        listener = Listener(vocabulary, 3, words=size, hidden=size)
    with torch.no_grad():
        speaker.logit.weight *= contrast
    captions = torch.randint(vocabulary + 1, (images, max_words), generator=rng)
    captions *= (captions == 0).cumsum(1) == 0
    regions = torch.randn(images, 2, 3, generator=rng, dtype=dtype)
    mask = torch.ones(images, 2, dtype=torch.bool)
    batch = Batch(torch.arange(images), regions.mean(1), regions, mask, captions)
    return GradientWorld(speaker.to(dtype), listener.to(dtype), batch)
