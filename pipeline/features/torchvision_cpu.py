"""torchvision beside a CPU-only PyTorch: its wheels link CUDA, and without their operators it cannot be imported."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import torch


@cache
def declare_operators() -> None:
    """Call before the first import of torchvision or timm.

    Where the compiled operators do not load, `nms` and `qnms` are declared, which is all that the import asks for: they
    have nothing behind them, and networks that do not detect boxes never call them. Where they load nothing is done.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        for compiled in (*Path(spec.origin).parent.glob("_C*.so"), *Path(spec.origin).parent.glob("_C*.pyd")):
            torch.ops.load_library(str(compiled))
    except OSError:
        pass
    if hasattr(torch.ops.torchvision, "nms"):
        return
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
