"""Differences between devices."""

from __future__ import annotations

import torch


def synchronous(device: torch.device) -> bool:
    """Whether a tensor on `device` can be read without waiting: a GPU would have to finish its work first.

    Where it cannot, callers compute for the largest possible size, and mask.
    """
    return device.type == "cpu"
