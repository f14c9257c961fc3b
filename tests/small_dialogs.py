"""A batch of small dialogs, and models that talk about it."""

from __future__ import annotations

import torch

from pipeline.models.answering import Answering
from pipeline.models.dialog_encoders import ENCODERS
from pipeline.models.discriminator import Discriminator
from pipeline.models.lstm import Lstm
from pipeline.models.transformer import Transformer
from pipeline.types import Asked, Batch

VOCABULARY, REGIONS, REGION, HIDDEN, WORDS, LONGEST = 11, 5, 6, 8, 7, 4


def batch(dialogs: int = 3, rounds: int = 4, options: int = 6, seed: int = 0, step: int = 0) -> Batch:
    """Answers of up to three words, the first of them without any; all rounds of `dialogs` dialogs."""
    rng = torch.Generator().manual_seed(seed)

    def texts(*shape: int, least: int = 1) -> torch.Tensor:
        tokens = torch.randint(1, VOCABULARY + 1, shape, generator=rng)
        lengths = torch.randint(least, shape[-1] + 1, shape[:-1], generator=rng)
        return tokens * (torch.arange(shape[-1]) < lengths.unsqueeze(-1))

    many = dialogs * rounds
    answers = torch.cat([torch.zeros(1, LONGEST, dtype=torch.int64), texts(9, LONGEST - 1).new_zeros(9, LONGEST)])
    answers[1:, : LONGEST - 1] = texts(9, LONGEST - 1)
    candidates = torch.stack([torch.randperm(len(answers), generator=rng)[:options] for _ in range(many)])
    truth = torch.randint(options, (many,), generator=rng)
    regions = torch.randn(dialogs, REGIONS, REGION, generator=rng).repeat_interleave(rounds, 0)
    asked = Asked(texts(many, 5), texts(dialogs, rounds, 8), candidates, truth, answers)
    said = answers[candidates.gather(1, truth.unsqueeze(1))[:, 0]]
    images = torch.arange(dialogs).repeat_interleave(rounds)
    mask = torch.ones(many, REGIONS, dtype=torch.bool)
    return Batch(images, regions.mean(1), regions, mask, said, step=step, asked=asked)


def encoder(kind: str = "hciae", dropout: float = 0.0, words: int = WORDS, **told: bool):
    return ENCODERS[kind](words, REGION, HIDDEN, dropout, **told)


def generator(
    kind: str = "hciae", decoder: str = "lstm", dropout: float = 0.0, seed: int = 0, **told: bool
) -> Answering:
    torch.manual_seed(seed)
    if decoder == "lstm":
        return Answering(encoder(kind, dropout, **told), Lstm(VOCABULARY, HIDDEN, WORDS, dropout, LONGEST))
    inner = Transformer(VOCABULARY, HIDDEN, HIDDEN, 0, 2, 2, dropout, LONGEST)
    return Answering(encoder(kind, dropout, HIDDEN, **told), inner)


def discriminator(answer: str = "attention", dropout: float = 0.0, seed: int = 1, **options: bool) -> Discriminator:
    torch.manual_seed(seed)
    return Discriminator(encoder("hciae", dropout), VOCABULARY, answer, dropout, **options)
