"""A fixed retriever: what rewards captions and learns in no joint training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.types import Batch, Message


class Retriever:
    """A dual encoder whose weights stay as they are, and the vectors of all M images of the prepared data set.

    It is a listener, which hears words or distributions over them, or a network of open_clip, which reads text. What a
    step's captions sound like is remembered as long as they are: a memory over steps would give a resumed run other
    bits, for a vector depends in its last digit on those that were made beside it.
    """

    def __init__(
        self,
        encoder: Listener | DualEncoder,
        vectors: Tensor,
        temperature: float,
        read: Callable[[Sequence[int]], str],
        neighbours: Tensor | None = None,
    ) -> None:
        """`vectors` (M, D) of length 1; `read`: ids → text; `neighbours` (M, K): rows of images like each one."""
        self.encoder = encoder.requires_grad_(False).eval()
        self.vectors, self.temperature, self.neighbours = vectors, temperature, neighbours
        self._read = read
        self._heard = WeakTensorKeyDictionary()

    @property
    def differentiable(self) -> bool:
        """Whether it hears distributions over words."""
        return isinstance(self.encoder, Listener)

    def look(self, batch: Batch) -> Tensor:
        """(B, D): the images of a batch."""
        return self.vectors[batch.images]

    def hear(self, message: Message) -> Tensor:
        """(N, D) of length 1, with a gradient to distributions over words, if it hears any."""
        if message.said is not None and isinstance(self.encoder, Listener):
            return self.encoder.hear(message)
        if message.tokens not in self._heard:
            self._heard[message.tokens] = self._words(message)
        return self._heard[message.tokens]

    @torch.no_grad()
    def _words(self, message: Message) -> Tensor:
        if isinstance(self.encoder, Listener):
            return self.encoder.hear(message)
        texts = [self._read(row) for row in message.tokens.tolist()]
        places = {text: place for place, text in enumerate(sorted(set(texts)))}
        return self.encoder.hear(list(places))[[places[text] for text in texts]]
