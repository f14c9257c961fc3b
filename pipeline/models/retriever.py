"""Frozen retriever, for the reward of captions or for validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.types import Batch, Message


class Retriever:
    """Frozen dual encoder with the vectors of all M images of the prepared data set.

    The encoder is a listener, which encodes tokens or distributions, or a `DualEncoder`, which encodes text. Text
    embeddings are cached as long as their tensor of tokens exists. They are not cached over steps: a vector's
    last digits depend on the other vectors of its batch, so a resumed run would differ.
    """

    def __init__(
        self,
        encoder: Listener | DualEncoder,
        vectors: Tensor,
        temperature: float,
        decode: Callable[[Sequence[int]], str],
        neighbours: Tensor | None = None,
    ) -> None:
        """Freeze `encoder`; `vectors` (M, D) are the images' unit vectors.

        `decode` decodes token ids to text, and `neighbours` (M, K) are the rows of similar images.
        """
        self.encoder = encoder.requires_grad_(False).eval()
        self.vectors, self.temperature, self.neighbours = vectors, temperature, neighbours
        self._decode = decode
        self._text_cache = WeakTensorKeyDictionary()

    @property
    def differentiable(self) -> bool:
        """Return whether the encoder accepts distributions over tokens."""
        return isinstance(self.encoder, Listener)

    def encode_image(self, batch: Batch) -> Tensor:
        """Return the vectors (B, D) of the batch's images."""
        return self.vectors[batch.images]

    def encode_text(self, message: Message) -> Tensor:
        """Encode captions as unit vectors (N, D), with a gradient to message.relaxed if `differentiable`."""
        if message.relaxed is not None and isinstance(self.encoder, Listener):
            return self.encoder.encode_text(message)
        if message.tokens not in self._text_cache:
            self._text_cache[message.tokens] = self._encode_tokens(message)
        encoded: Tensor = self._text_cache[message.tokens]
        return encoded

    @torch.no_grad()
    def _encode_tokens(self, message: Message) -> Tensor:
        if isinstance(self.encoder, Listener):
            return self.encoder.encode_text(message)
        texts = [self._decode(row) for row in message.tokens.tolist()]
        indices = {text: index for index, text in enumerate(sorted(set(texts)))}
        return self.encoder.encode_text(list(indices))[[indices[text] for text in texts]]
