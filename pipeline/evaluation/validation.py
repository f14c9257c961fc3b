"""What is looked at while training goes on: a few numbers, soon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from pipeline.channels.words import Greedy
from pipeline.evaluation.generate import captions
from pipeline.evaluation.judges import ListenerJudge, Spoken, verdict
from pipeline.metrics.cider import CiderD
from pipeline.metrics.retrieval import recall, search
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.retriever import Retriever
from pipeline.types import Batch, Message, caption_mask


@dataclass(frozen=True)
class Validation:
    """Greedy captions of `batches()`, a whole split in order, or its human captions where only a listener learns.

    Gives CIDEr (of a speaker), recall@1, @5, @10 of captions read by the listener (of both), NAME_recall@1, … of those
    read by each one `watching`, and for a listener alone also those of images looking for their captions, and `rsum`,
    the sum of all six (VSE++'s criterion).
    """

    speaker: Decoder | None
    listener: Listener | None
    cider: CiderD | None
    batches: Callable[[], Iterable[Batch]]
    device: torch.device
    unk: int  # what the speaker never says; −1: there is no such word
    dtype: torch.dtype | None = None  # of large products while captions are generated; None: the weights' own
    watching: Mapping[str, Retriever] = field(default_factory=dict)

    def __call__(self) -> dict[str, float]:
        if self.speaker is None:
            seen = [(batch.captions, batch.pooled) for batch in self.batches()]
            human, pooled = (torch.cat(parts) for parts in zip(*seen, strict=True))
            return self._recall(human, pooled, both_ways=True)
        said = captions(self.speaker, self.batches(), Greedy(), self.device, self.unk, self.dtype)
        assert self.cider is not None
        tokens = said.tokens.flatten(0, 1)
        cider = self.cider(tokens.to(self.device), said.images.to(self.device))
        found = {"cider": float(cider.mean())}
        for who, retriever in self.watching.items():
            found |= {f"{who}_{name}": share for name, share in self._watched(retriever, tokens, said.images).items()}
        if self.listener is None:
            return found
        return found | self._recall(tokens, said.pooled, both_ways=False)

    def _watched(self, retriever: Retriever, tokens: torch.Tensor, rows: torch.Tensor) -> dict[str, float]:
        images = torch.arange(len(tokens))
        message = Message(tokens.to(self.device), caption_mask(tokens).to(self.device), images.to(self.device), 1)
        seen = retriever.vectors[rows.to(self.device)]
        found = search(retriever.hear(message), seen, images.to(self.device))
        recalls = recall(found.by_caption.cpu())
        return {f"recall@{k}": recalls[f"R@{k}"] for k in (1, 5, 10)}

    def _recall(self, tokens: torch.Tensor, pooled: torch.Tensor, both_ways: bool) -> dict[str, float]:
        assert self.listener is not None
        images = torch.arange(len(tokens))
        judge = ListenerJudge(self.listener, lambda rows: pooled[rows], self.device)
        found = verdict(judge, Spoken(tokens, ()), images, images)
        there = {f"recall@{k}": found.text_to_image[f"R@{k}"] for k in (1, 5, 10)}
        if not both_ways:
            return there
        back = {f"recall@{k}_of_captions": found.image_to_text[f"R@{k}"] for k in (1, 5, 10)}
        return there | back | {"rsum": sum(there.values()) + sum(back.values())}
