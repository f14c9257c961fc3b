"""BLEU and ROUGE-L of each caption of a batch as rewards, computed on the batch's device.

The scores equal pycocoevalcap's on the same tokens. Captions are `tokens` (T, N) int16, padded with -1. Each caption
has at most R `references` (W, R, N) of at most W tokens, padded likewise. `CiderD.pair_with_references` returns both,
and decides whether EOS counts as a token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.metrics.cider import ORDERS, count_occurrences

BETA = 1.2  # ROUGE-L: weight of recall relative to precision


def compute_bleu_per_caption(tokens: Tensor, references: Tensor) -> Tensor:
    """Return BLEU-1 … BLEU-4 (4, N) float64 of each caption; the brevity penalty uses the closest reference length.

    The smoothing is pycocoevalcap's: 1e-15 is added to matches and 1e-9 to the number of n-grams. BLEU-n without a
    matching n-gram is thus slightly above 0. Source: Papineni et al. (2002).
    """
    counts = count_occurrences(tokens, tokens[:, None]).squeeze(2).double()  # (4, T, N)
    reference_counts = count_occurrences(tokens, references).amax(2).double()  # (4, T, N)
    # an n-gram that occurs k times begins at k positions, so each counts as 1/k of the matches
    matched = (torch.minimum(counts, reference_counts) / counts.clamp(min=1)).sum(1).round()  # (4, N)
    length = (tokens >= 0).sum(0).double()  # (N,)
    ngram_counts = (length - torch.arange(ORDERS, device=tokens.device).unsqueeze(1)).clamp(min=0)
    orders = torch.arange(1, ORDERS + 1, device=tokens.device).unsqueeze(1)
    precision = (((matched + 1e-15) / (ngram_counts + 1e-9)).log().cumsum(0) / orders).exp()
    lengths = (references >= 0).sum(0).double()  # (R, N)
    # the shorter of two equally close references
    distance = (2 * (lengths - length).abs() + (lengths > length)).masked_fill(lengths == 0, torch.inf)
    closest = lengths.gather(0, distance.argmin(0, keepdim=True)).squeeze(0)
    ratio = (length + 1e-15) / (closest + 1e-9)
    return precision * (1 - 1 / ratio.clamp(max=1)).exp()


def compute_rouge_l(tokens: Tensor, references: Tensor) -> Tensor:
    """Return ROUGE-L (N,) float64 from precision and recall of the longest common subsequence.

    Precision and recall are separate maxima over the references. Source: Lin (2004), as in pycocoevalcap.
    """
    longest = references.new_zeros(references.shape)  # length of the longest common subsequence with each prefix
    for token in tokens:
        diagonal = torch.cat([torch.zeros_like(longest[:1]), longest[:-1]])
        same = (references == token) & (token >= 0)
        longest = torch.where(same, torch.maximum(longest, diagonal + 1), longest).cummax(0).values
    common = longest[-1].double()  # (R, N)
    precision = (common / (tokens >= 0).sum(0).clamp(min=1)).amax(0)
    recall = (common / (references >= 0).sum(0).clamp(min=1)).amax(0)
    denominator = recall + BETA**2 * precision
    return (1 + BETA**2) * precision * recall / denominator.masked_fill(denominator == 0, 1)
