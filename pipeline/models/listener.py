"""VSE++, the listener of Faghri et al. 2018: images and captions as unit vectors in one space."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.kernels.gru import compute_last_gru_states
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.recurrent import Gru
from pipeline.runtime import devices
from pipeline.types import Message

EPSILON = 1e-7


class Listener(nn.Module):
    """Dual encoder of images, by a linear map, and captions, by the encoder "gru", "bag" or "pair".

    "gru" is a GRU's last state. "bag" is a linear map of the mean embedding. "pair" combines both, which have separate
    embeddings and image maps; the cosine is the mean of both cosines. Image vectors are those of the feature set
    `features`. Captions are tokens, or distributions as mixtures of embeddings (`message.relaxed`).
    """

    def __init__(
        self,
        vocabulary: int,
        image_size: int,
        words: int = 512,
        hidden: int = 1024,
        encoder: Literal["gru", "bag", "pair"] = "gru",
        features: str = "main",
    ) -> None:
        super().__init__()
        self.vocabulary, self.features = vocabulary, features
        self.parts = 2 if encoder == "pair" else 1
        self.arguments = collect_constructor_arguments(locals())
        self.image = nn.Linear(image_size, self.parts * hidden)
        self.word = nn.Embedding(vocabulary + 2, self.parts * words)
        self.gru = Gru(words, hidden, batch_first=True) if encoder != "bag" else None
        self.bag = nn.Linear(words, hidden) if encoder != "gru" else None
        nn.init.xavier_uniform_(self.image.weight)
        nn.init.zeros_(self.image.bias)
        nn.init.uniform_(self.word.weight, -0.1, 0.1)

    def encode_image(self, pooled: Tensor) -> Tensor:
        """Encode image vectors (B, P) as unit vectors (B, H), or (B, 2·H) with "pair"."""
        return self._normalise(self.image(pooled))

    def encode_text(self, message: Message) -> Tensor:
        """Encode N captions as unit vectors (N, H), or (N, 2·H) with "pair", up to and including the first EOS.

        The GRU's first input is BOS; the mean embedding leaves BOS out.
        """
        table = SharedWeight(self.word.weight)
        words = table.rows(message.tokens.flatten())
        if message.relaxed is not None:
            words = message.relaxed.embed(words, table.mixture, table.straight_through)
        bos = table.rows(torch.full_like(message.tokens[:1, 0], self.vocabulary + 1)).expand(len(message), -1)
        words = torch.cat([bos.unsqueeze(1), words.view(*message.tokens.shape, -1)], 1)  # (N, T+1, parts · E)
        inputs, encodings = words.chunk(self.parts, 2), []
        if self.gru is not None:
            encodings.append(_compute_last_state(self.gru, inputs[0].contiguous(), message.mask.sum(1)))
        if self.bag is not None:
            weight = message.mask.unsqueeze(-1).to(words.dtype)
            encodings.append(self.bag((inputs[-1][:, 1:] * weight).sum(1) / weight.sum(1)))
        return self._normalise(torch.cat(encodings, 1))

    def _normalise(self, x: Tensor) -> Tensor:
        """Normalise the parts of `x` (B, parts · H) to equal length, and each row to length 1."""
        parts = F.normalize(x.view(len(x), self.parts, -1), dim=-1, eps=EPSILON)
        unit: Tensor = parts.flatten(1) / self.parts**0.5
        return unit


def _compute_last_state(gru: nn.GRU, words: Tensor, last: Tensor) -> Tensor:
    """Compute the state (N, H) after the input at index `last` (N,) of `words` (N, T+1, E)."""
    if devices.is_synchronous(words.device):
        return compute_last_gru_states(gru, words, last + 1)
    states: Tensor = gru(words)[0]  # (N, T+1, H)
    return states[torch.arange(len(words), device=words.device), last]
