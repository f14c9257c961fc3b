"""Ranking of candidate answers (Das et al. 2017), and NDCG (VisDial challenge).

A human answer ranks behind all candidates with the same score. If all candidates have equal scores, the human
answer therefore has the last rank. Options that truncation made equal do not improve its rank. In NDCG, ties share
their mean discount.
"""

from __future__ import annotations

import torch
from torch import Tensor


def compute_candidate_ranks(scores: Tensor, truth: Tensor) -> Tensor:
    """Return ranks (N,) int64, 1 is best, of the candidates `truth` (N,) by `scores` (N, O).

    A candidate `truth` with the score NaN ranks last. Another candidate with the score NaN ranks before `truth`.
    """
    truth_scores = scores.gather(1, truth.unsqueeze(1))
    return (~(scores < truth_scores)).sum(1)  # a comparison with NaN is False


def compute_ndcg(scores: Tensor, relevance: Tensor) -> Tensor:
    """Return NDCG (N,) of `scores` (N, O) by `relevance` (N, O); NaN if nothing is relevant or relevance is unknown.

    NDCG is Σ relevance / log₂(rank + 1) over the first K ranks, divided by the same sum for the ideal order. K is
    the number of relevant candidates. Candidates of equal score share the mean discount of their ranks. A NaN score
    counts as −∞.
    """
    scores = scores.masked_fill(scores.isnan(), -torch.inf)
    known = ~relevance.isnan().any(1)
    relevance = relevance.nan_to_num(0.0)
    positions = torch.arange(scores.shape[1], device=scores.device)
    discount = 1 / torch.log2(positions + 2.0)
    top_discount = discount * (positions < (relevance > 0).sum(1, keepdim=True))
    ordered, order = scores.sort(dim=1, descending=True, stable=True)
    # candidates of equal score share the mean discount of their ranks
    first = torch.cat([torch.ones_like(ordered[:, :1], dtype=torch.bool), ordered[:, 1:] != ordered[:, :-1]], 1)
    group = first.long().cumsum(1) - 1
    sums = torch.zeros_like(top_discount).scatter_add_(1, group, top_discount)
    sizes = torch.zeros_like(top_discount).scatter_add_(1, group, torch.ones_like(top_discount))
    shared = (sums / sizes.clamp(min=1)).gather(1, group)
    gain = (relevance.gather(1, order) * shared).sum(1)
    ideal = (relevance.sort(dim=1, descending=True).values * top_discount).sum(1)
    return torch.where(known & (ideal > 0), gain / ideal, torch.nan)


def correlate_with_truth(scores: Tensor, relevance: Tensor) -> Tensor:
    """Return Pearson's correlation (N,) of `scores` (N, O) with truth, which is 1 for relevance 1, else 0.

    The correlation is NaN where relevance is unknown or a score is not finite. It is also NaN where all candidates have
    the same score or the same truth.
    """
    known = ~relevance.isnan().any(1)
    pair = torch.stack([scores.double(), (relevance == 1).double()])
    pair = pair - pair.mean(2, keepdim=True)
    correlation = pair.prod(0).sum(1) / pair.square().sum(2).prod(0).sqrt()
    differ = (scores != scores[:, :1]).any(1)  # the mean of equal scores may differ from them by rounding
    return torch.where(known & differ & correlation.isfinite(), correlation, torch.nan)


def summarise_ranking(ranks: Tensor, gains: Tensor | None = None) -> dict[str, float]:
    """Return MRR, mean rank, and R@1, R@5 and R@10 in % of `ranks` (N,), and the mean NDCG of `gains` (N,) if known."""
    metrics = {"MRR": float((1 / ranks.double()).mean())}
    metrics |= {f"R@{k}": float(100 * (ranks <= k).double().mean()) for k in (1, 5, 10)}
    metrics["mean_rank"] = float(ranks.double().mean())
    if gains is not None and not gains.isnan().all():
        metrics["NDCG"] = float(gains.double().nanmean())
    return metrics
