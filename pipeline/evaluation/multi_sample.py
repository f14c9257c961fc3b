"""Quality and diversity of caption sets: each image's random samples, and the best captions of a beam."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import torch

from pipeline.channels.hard import Beam, Multinomial
from pipeline.channels.search import ban_repeated_ngrams
from pipeline.evaluation.generate import generate_captions
from pipeline.evaluation.set_sizes import SetSizes
from pipeline.metrics.diversity import MBLEU_CORPUS, MBLEU_PER_CAPTION, measure_set_diversity
from pipeline.metrics.java import NotComputedError
from pipeline.metrics.language import LanguageScorer
from pipeline.models.decoder import Decoder
from pipeline.protocols import Channel
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary

Sets = list[list[str]]  # K captions of each image


class MultiSample(SetSizes):
    """Generator of caption sets of the given sizes."""

    def generate(
        self,
        speaker: Decoder,
        batches: Callable[[], Iterable[Batch]],
        vocabulary: Vocabulary,
        device: torch.device,
        no_repeat: int | None = None,
    ) -> dict[str, Sets]:
        """Return the caption sets of all images: `samples` drawn at random, and `beams` from a beam, the best first.

        With `no_repeat`, no caption repeats an n-gram of that length. UNK is masked.
        """
        channels: dict[str, Channel] = {
            "samples": Multinomial(self.samples, requires_grad=False),
            "beams": Beam(self.beams, self.beams),
        }
        sets: dict[str, Sets] = {}
        for name, channel in channels.items():
            decoding = ban_repeated_ngrams(channel, no_repeat)
            tokens = generate_captions(speaker, batches(), decoding, device, vocabulary.unk).tokens
            sets[name] = [[vocabulary.decode(row) for row in rows] for rows in tokens.tolist()]
        return sets


def measure_sets(
    sets: Sets, references: Sequence[Sequence[str]], language: LanguageScorer
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the number `captions` per image, CIDEr averaged over an image's captions, Div-1, Div-2 and both mBLEU-4.

    A metric that could not be computed is missing from the first mapping; the second holds its reason.
    """
    measures: dict[str, Any] = {"captions": len(sets[0])}
    try:
        language.tokenise([text for captions in sets for text in captions])  # one call: each call starts a program
        measures |= measure_set_diversity([language.tokenise(captions) for captions in sets])
    except NotComputedError as reason:
        return measures, dict.fromkeys(("CIDEr", "Div-1", "Div-2", MBLEU_CORPUS, MBLEU_PER_CAPTION), str(reason))
    scores = [language.score([captions[k] for captions in sets], references, ["CIDEr"]) for k in range(len(sets[0]))]
    reasons = {name: reason for score in scores for name, reason in score.not_computed.items()}
    if not reasons:
        measures["CIDEr"] = fmean(score.scores["CIDEr"] for score in scores)
    return measures, reasons
