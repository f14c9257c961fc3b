"""Data-parallel processes that train one model, as torchrun starts them; without torchrun there is one rank.

The ranks share each batch, and a loss is a sum over all captions of the batch. Each rank computes the share of its own
captions, and gradients are summed. The number of ranks therefore changes only the order of sums. Scores over one
rank's part of a batch, such as `NPairScore`, are an exception.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather

T = TypeVar("T")


def is_distributed() -> bool:
    """Return whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def join_process_group(device: torch.device) -> None:
    """Connect with the other ranks, on `device`."""
    if is_distributed() and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def leave_process_group() -> None:
    """Disconnect from the other ranks."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def count_ranks() -> int:
    """Return the number of ranks."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def get_rank() -> int:
    """Return the number of this rank, from 0; only rank 0 writes files."""
    return dist.get_rank() if count_ranks() > 1 else 0


def all_sum(x: Tensor) -> Tensor:
    """Return the sum of `x` over the ranks, without a gradient."""
    x = x.detach()
    if count_ranks() > 1:
        x = x.clone()
        dist.all_reduce(x)
    return x


def all_max(number: int, device: torch.device) -> int:
    """Return the greatest `number` among the ranks."""
    if count_ranks() > 1:
        buffer = torch.tensor(number, device=device)
        dist.all_reduce(buffer, dist.ReduceOp.MAX)
        number = int(buffer)
    return number


def gather_with_gradient(x: Tensor) -> Tensor:
    """Return (ranks·N, …): `x` (N, …) of all ranks in order; a rank's `x` gets the sum of all ranks' gradients."""
    if count_ranks() == 1:
        return x
    return torch.cat(all_gather(x.contiguous()))


def get_own_part(x: Tensor, dim: int = 0) -> Tensor:
    """Return this rank's part of a tensor that `gather_with_gradient` concatenated, along `dim`."""
    return x if count_ranks() == 1 else x.chunk(count_ranks(), dim)[get_rank()]


def all_reduce_sum(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by their sums over the ranks, with one all-reduce for each dtype."""
    if count_ranks() == 1:
        return
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # each rank in the same order
        group = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.flatten() for tensor in group])
        dist.all_reduce(flat)
        for tensor, part in zip(group, flat.split([tensor.numel() for tensor in group]), strict=True):
            tensor.copy_(part.view_as(tensor))


def broadcast(value: T) -> T:
    """Return the `value` of rank 0."""
    if count_ranks() == 1:
        return value
    buffer: list[Any] = [value]
    dist.broadcast_object_list(buffer)
    return buffer[0]
