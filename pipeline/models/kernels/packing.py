"""Order in which recurrent kernels process texts of different lengths."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PackedOrder(NamedTuple):
    """Order of the M inputs of N texts: by time step, the longest texts first."""

    texts: Tensor  # (N,): indices of the texts, the longest first
    batch_sizes: Tensor  # (T,): number of texts at each time step
    positions: Tensor  # (M,): index of each input among N · T inputs


def pack_texts(lengths: Tensor, steps: int) -> PackedOrder:
    """Return the packed order of N texts with `steps` inputs each, of which text n uses the first `lengths[n]` ≥ 1."""
    order = lengths.argsort(descending=True)
    batch_sizes = (lengths > torch.arange(int(lengths.max())).unsqueeze(1)).sum(1)
    positions = torch.cat([order[:rows] * steps + t for t, rows in enumerate(batch_sizes.tolist())])
    return PackedOrder(order, batch_sizes, positions)
