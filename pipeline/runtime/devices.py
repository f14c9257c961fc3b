"""Differences between devices that callers must consider."""

from __future__ import annotations

import torch


def is_synchronous(device: torch.device) -> bool:
    """Return whether reading a tensor on `device` needs no wait, as on a CPU; a GPU would first finish its queue.

    On other devices, callers compute for the largest possible size, and mask the rest.
    """
    return device.type == "cpu"
