"""Import of torchvision with a CPU-only PyTorch.

The compiled operators of PyPI's torchvision link CUDA, and torchvision cannot be imported without operators.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import torch
from torch import Tensor


@cache
def declare_operators() -> None:
    """Declare torchvision's operators where the compiled ones do not load; call before importing torchvision or timm.

    torchvision cannot be imported without `nms` and `qnms`. `nms` is then `plain_nms`, and `roi_align` falls back to
    torchvision's implementation in Python. Where the compiled operators load, nothing is changed.
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
    torch.library.impl("torchvision::nms", "CPU", plain_nms)
    import torchvision

    # nms() calls _has_ops before the operator; roi_align has imported the original _has_ops and falls back
    torchvision.extension._has_ops = lambda: True


def plain_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Return the indices (m,) of the boxes (n, 4) that non-maximum suppression keeps, best first, as in torchvision."""
    order = scores.argsort(descending=True, stable=True)
    return order[nms_by_class(boxes, scores[:, None], threshold)[order, 0]]


def nms_by_class(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Return (n, C) bool: the boxes (n, 4) that non-maximum suppression keeps in each of C classes, by scores (n, C).

    A box is dropped if a kept box of higher score overlaps it by an IoU above `threshold`. Of equal scores, the first
    counts as higher. IoUs are computed once for all classes, which share the boxes. Each step takes every class's next
    box in the order of its scores.
    """
    from torchvision.ops import box_iou

    overlaps = (box_iou(boxes, boxes) > threshold).fill_diagonal_(False)
    kept = torch.ones(scores.shape[1], len(boxes), dtype=torch.bool, device=boxes.device)
    for box in scores.argsort(dim=0, descending=True, stable=True):  # (C,): the next box of each class
        # a box that is still kept here stays kept, and drops the lower-scoring boxes that it overlaps
        kept &= ~(overlaps[box] & kept.gather(1, box[:, None]))
    return kept.T
