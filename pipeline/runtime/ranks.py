"""Several processes that train one model on parts of each batch, as torchrun starts them; alone, all this does nothing.

A batch is one batch, however many ranks hold it: losses are those of all captions, each rank computes the share of its
own, and gradients are summed. So the number of ranks changes nothing but the order of sums.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def started() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def join(device: torch.device) -> None:
    """Connect with the other ranks, on `device`."""
    if started() and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def leave() -> None:
    """Disconnect from the other ranks."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def size() -> int:
    """The number of ranks."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this one, from 0; rank 0 alone writes."""
    return dist.get_rank() if size() > 1 else 0


def total(x: Tensor) -> Tensor:
    """The sum of `x` over the ranks, without a gradient."""
    x = x.detach()
    if size() > 1:
        x = x.clone()
        dist.all_reduce(x)
    return x


def most(number: int, device: torch.device) -> int:
    """The greatest `number` among the ranks."""
    if size() > 1:
        box = torch.tensor(number, device=device)
        dist.all_reduce(box, dist.ReduceOp.MAX)
        number = int(box)
    return number


def gathered(x: Tensor) -> Tensor:
    """(ranks·N, …): `x` (N, …) of all ranks in order, with a gradient to each rank's own."""
    if size() == 1:
        return x
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(x.contiguous()))


def own(x: Tensor, dim: int = 0) -> Tensor:
    """This rank's part of what `gathered` put together along `dim`."""
    return x if size() == 1 else x.chunk(size(), dim)[rank()]


def add_up(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by their sums over the ranks, in one message for each dtype."""
    if size() == 1:
        return
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # each rank in the same order
        group = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.flatten() for tensor in group])
        dist.all_reduce(flat)
        for tensor, part in zip(group, flat.split([tensor.numel() for tensor in group]), strict=True):
            tensor.copy_(part.view_as(tensor))


def broadcast(value: T) -> T:
    """The `value` of rank 0."""
    if size() == 1:
        return value
    box: list[Any] = [value]
    dist.broadcast_object_list(box)
    return box[0]
