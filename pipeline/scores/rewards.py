"""Weighted sums of caption metrics as one score (Liu et al. 2017: BCMR, SPICE, SPIDEr)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.metrics.cider import CiderD
from pipeline.metrics.overlap import compute_bleu_per_caption, compute_rouge_l
from pipeline.metrics.registry import BY_NAME, METRICS, Metric, RewardMetric
from pipeline.metrics.text_rewards import TextScorer, check_text_metric
from pipeline.protocols import Score
from pipeline.ranges import Weight
from pipeline.scores.naturalness import CiderScore
from pipeline.types import Batch, Message

MetricMix = Literal["cider", "bcmr", "spice", "spider"]
Reward = MetricMix | dict[RewardMetric, Weight]
BLEU = BY_NAME["BLEU"].names
MIXES: dict[MetricMix, dict[RewardMetric, float]] = {
    "cider": {"CIDEr": 1},
    "bcmr": {"BLEU-1": 0.5, "BLEU-2": 0.5, "BLEU-3": 1, "BLEU-4": 1, "CIDEr": 1, "METEOR": 5, "ROUGE-L": 2},
    "spice": {"SPICE": 1},
    "spider": {"SPICE": 1, "CIDEr": 1},
}


@dataclass(frozen=True)
class BleuScore:
    """Weighted sum of BLEU-1 … BLEU-4, on the words that CIDEr-D counts."""

    scorer: CiderD
    weights: tuple[float, ...]
    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        words, human = self.scorer.pair_with_references(message.tokens, batch.images[message.images])
        bleu = compute_bleu_per_caption(words, human)
        return (bleu * bleu.new_tensor(self.weights).unsqueeze(1)).sum(0).to(self.scorer.idf.dtype)


@dataclass(frozen=True)
class RougeLScore:
    """ROUGE-L on the words that CIDEr-D counts."""

    scorer: CiderD
    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        words, human = self.scorer.pair_with_references(message.tokens, batch.images[message.images])
        return compute_rouge_l(words, human).to(self.scorer.idf.dtype)


@dataclass(frozen=True)
class TextScore:
    """Metric of the caption's text; from a GPU, the tokens are first copied to the CPU."""

    metric: Metric
    scorer: TextScorer
    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return self.scorer.score(self.metric, message.tokens, batch.images[message.images]).to(batch.pooled.dtype)


@dataclass(frozen=True)
class WeightedSum:
    """Weighted sum of scores."""

    parts: tuple[tuple[float, Score], ...]

    @property
    def differentiable(self) -> bool:
        return all(score.differentiable for _, score in self.parts)

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return torch.stack([weight * score(message, batch) for weight, score in self.parts]).sum(0)


def mix_metrics(mix: MetricMix | Mapping[RewardMetric, float], cider: CiderD, texts: TextScorer) -> Score:
    """Build the score that `mix` names, or the sum with the weights of `mix`. CIDEr-D is 0 … 10, all others 0 … 1.

    Raises UserError where no metric has a weight other than 0, or SPICE's files are missing.
    """
    weights = {metric: weight for metric, weight in (MIXES[mix] if isinstance(mix, str) else mix).items() if weight}
    if not weights:
        raise UserError(
            f"reward: no metric has a weight other than 0; set one or more, as in {{CIDEr: 1, {BLEU[3]}: 0.5}}"
        )
    parts: list[tuple[float, Score]] = []
    if "CIDEr" in weights:
        parts.append((weights["CIDEr"], CiderScore(cider)))
    if weights.keys() & set(BLEU):
        parts.append((1.0, BleuScore(cider, tuple(float(weights.get(name, 0)) for name in BLEU))))
    if "ROUGE-L" in weights:
        parts.append((weights["ROUGE-L"], RougeLScore(cider)))
    for metric in METRICS:
        if metric.reward == "text" and metric.name in weights:
            check_text_metric(metric)
            parts.append((weights[metric.name], TextScore(metric, texts)))
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else WeightedSum(tuple(parts))
