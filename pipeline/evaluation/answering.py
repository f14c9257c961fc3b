"""One answer: what a generator says to a question about an image, after a caption and what was said before."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.channels.words import Beam, Without
from pipeline.models.answering import Answering
from pipeline.models.unroll import speak
from pipeline.types import Asked, Batch
from pipeline.vocabulary import Vocabulary


@torch.no_grad()
def answer(
    speaker: Answering,
    vocabulary: Vocabulary,
    regions: Tensor,
    caption: Sequence[str],
    history: Sequence[tuple[Sequence[str], Sequence[str]]],
    question: Sequence[str],
    beam: int = 5,
) -> str:
    """The best answer of a beam to `question`, all texts as words; `regions` (K, D) are the image's.

    `history` are the questions and answers so far. UNK is never said.
    """
    speaker.eval()
    items = [caption, *([*asked, *said] for asked, said in history)]
    many = len(items)  # rounds; the question is asked in the last
    tokens = _padded([vocabulary.encode(item) for item in items]).unsqueeze(0)
    questions = [vocabulary.encode(asked) for asked, _ in history] + [vocabulary.encode(question)]
    nothing = torch.zeros(many, 1, dtype=torch.int64)
    asked = Asked(_padded(questions), tokens, nothing, nothing[:, 0], nothing[:1])
    seen = regions.unsqueeze(0).expand(many, -1, -1)
    there = torch.ones(seen.shape[:2], dtype=torch.bool)
    batch = Batch(torch.zeros(many, dtype=torch.int64), seen.mean(1), seen, there, nothing, asked=asked)
    device = next(speaker.parameters()).device
    said = speak(speaker, batch.to(device), Without(Beam(beam), vocabulary.unk), torch.Generator(device))
    return vocabulary.decode(said.tokens[-1].tolist())


def _padded(texts: Sequence[Sequence[int]]) -> Tensor:
    """(n, T) int64, filled up with 0."""
    longest = max(1, *map(len, texts))
    return torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
