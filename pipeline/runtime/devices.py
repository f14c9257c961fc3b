"""What may be asked of a device in the middle of a step."""

from __future__ import annotations

import torch


def synchronous(device: torch.device) -> bool:
    """Whether what a tensor on `device` holds can be read at once: a GPU would have to finish its work first.

    Where it cannot, as much is computed as there could be, and masked.
    """
    return device.type == "cpu"
