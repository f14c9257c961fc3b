"""Comparison of a pretrained model's memory with the free memory of a device."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from pipeline.errors import UserError


def check_fit(model: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Raise UserError where the weights of `model` in the precision `dtype` exceed the free memory of `device`."""
    needed = sum(weight.numel() for weight in model.parameters()) * dtype.itemsize
    free = read_available_memory(device)
    if free is not None and needed > free:
        raise UserError(
            f"its weights need {needed / 1e9:.1f} GB as {str(dtype).removeprefix('torch.')}, and {device.type} "
            f"has {free / 1e9:.1f} GB free; give "
            + ("--dtype bfloat16, or " if dtype.itemsize > 2 else "")
            + "a smaller model"
        )


def read_available_memory(device: torch.device) -> int | None:
    """Return the free memory of `device` in bytes, or None where the system does not report it."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    table = Path("/proc/meminfo")
    lines = table.read_text(encoding="ascii").splitlines() if table.exists() else []
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] if sizes else None
