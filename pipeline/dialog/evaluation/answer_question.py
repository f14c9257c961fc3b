"""Generation of one answer to a question about an image, given a caption and the dialog so far."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.channels.hard import BanToken, Beam
from pipeline.dialog.data.dialog_questions import DialogBatch, DialogQuestions
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.models.unroll import generate
from pipeline.vocabulary import Vocabulary


@torch.no_grad()
def answer_question(
    speaker: DialogDecoder,
    vocabulary: Vocabulary,
    regions: Tensor,
    caption: Sequence[str],
    history: Sequence[tuple[Sequence[str], Sequence[str]]],
    question: Sequence[str],
    beam: int = 5,
) -> str:
    """Return the best beam answer to `question`, as text; `regions` (K, D) are the image's features.

    `caption`, `question` and `history`, the questions and answers so far, are lists of words. UNK is never generated.
    """
    speaker.eval()
    items = [caption, *([*asked, *said] for asked, said in history)]
    many = len(items)  # rounds; `question` belongs to the last
    tokens = _padded([vocabulary.encode(item) for item in items]).unsqueeze(0)
    questions = [vocabulary.encode(asked) for asked, _ in history] + [vocabulary.encode(question)]
    nothing = torch.zeros(many, 1, dtype=torch.int64)
    asked = DialogQuestions(_padded(questions), tokens, nothing, nothing[:, 0], nothing[:1])
    seen = regions.unsqueeze(0).expand(many, -1, -1)
    there = torch.ones(seen.shape[:2], dtype=torch.bool)
    batch = DialogBatch(torch.zeros(many, dtype=torch.int64), seen.mean(1), seen, there, nothing, asked=asked)
    device = next(speaker.parameters()).device
    said = generate(speaker, batch.to(device), BanToken(Beam(beam), vocabulary.unk), torch.Generator(device))
    return vocabulary.decode(said.tokens[-1].tolist())


def _padded(texts: Sequence[Sequence[int]]) -> Tensor:
    """Return token ids (n, T) int64, padded with 0."""
    longest = max(1, *map(len, texts))
    return torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
