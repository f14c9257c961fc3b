"""BLEU and ROUGE-L of each caption as rewards: all captions of a batch at once, on the device where they are.

Both equal pycocoevalcap's on the same tokens. Captions are words (T, N) int16, references (W, R, N), -1 where there is
no word, as from `CiderD.side_by_side`, which decides whether the EOS counts as a word.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.metrics.cider import ORDERS, occurrences

BETA = 1.2  # ROUGE-L: how much more recall weighs than precision


def bleu(words: Tensor, human: Tensor) -> Tensor:
    """BLEU-1 … BLEU-4 (4, N) float64 of each caption alone, against the reference closest in length.

    Smoothed as pycocoevalcap does: 1e-15 is added to matches and 1e-9 to the number of n-grams, so that BLEU-n without
    a matching n-gram is not quite 0. Source: Papineni et al. (2002).
    """
    said = occurrences(words, words[:, None]).squeeze(2).double()  # (4, T, N)
    heard = occurrences(words, human).amax(2).double()  # (4, T, N)
    # an n-gram that occurs k times has k places
    matched = (torch.minimum(said, heard) / said.clamp(min=1)).sum(1).round()  # (4, N)
    length = (words >= 0).sum(0).double()  # (N,)
    grams = (length - torch.arange(ORDERS, device=words.device).unsqueeze(1)).clamp(min=0)
    orders = torch.arange(1, ORDERS + 1, device=words.device).unsqueeze(1)
    precision = (((matched + 1e-15) / (grams + 1e-9)).log().cumsum(0) / orders).exp()
    lengths = (human >= 0).sum(0).double()  # (R, N)
    # of two that are equally close the shorter
    apart = (2 * (lengths - length).abs() + (lengths > length)).masked_fill(lengths == 0, torch.inf)
    closest = lengths.gather(0, apart.argmin(0, keepdim=True)).squeeze(0)
    ratio = (length + 1e-15) / (closest + 1e-9)
    return precision * (1 - 1 / ratio.clamp(max=1)).exp()


def rouge_l(words: Tensor, human: Tensor) -> Tensor:
    """ROUGE-L (N,) float64: precision and recall of the longest common subsequence, each of the best reference.

    Source: Lin (2004), as pycocoevalcap computes it.
    """
    longest = human.new_zeros(human.shape)  # for each prefix of the references
    for word in words:
        diagonal = torch.cat([torch.zeros_like(longest[:1]), longest[:-1]])
        same = (human == word) & (word >= 0)
        longest = torch.where(same, torch.maximum(longest, diagonal + 1), longest).cummax(0).values
    common = longest[-1].double()  # (R, N)
    precision = (common / (words >= 0).sum(0).clamp(min=1)).amax(0)
    recall = (common / (human >= 0).sum(0).clamp(min=1)).amax(0)
    both = recall + BETA**2 * precision
    return (1 + BETA**2) * precision * recall / both.masked_fill(both == 0, 1)
