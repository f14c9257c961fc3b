"""torchvision beside a CPU-only PyTorch: its wheels link CUDA, and without their operators it cannot be imported."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import torch
from torch import Tensor


@cache
def declare_operators() -> None:
    """Call before the first import of torchvision or timm.

    Where the compiled operators do not load, `nms` and `qnms` are declared, without which torchvision cannot be
    imported, and `nms` is `plain_nms`; `roi_align` falls back to torchvision's own Python. Where they load, nothing is
    done.
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

    # nms() checks this before it calls the operator; roi_align imports it under its own name and falls back
    torchvision.extension._has_ops = lambda: True


def plain_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Non-maximum suppression as torchvision's operator: indices (m,) of the boxes (n, 4) that stay, best first."""
    order = scores.argsort(descending=True, stable=True)
    return order[nms_by_class(boxes, scores[:, None], threshold)[order, 0]]


def nms_by_class(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Non-maximum suppression in each of C classes: boxes (n, 4), scores (n, C) → (n, C) bool: which boxes stay.

    A box stays if no box that stays and has a higher score overlaps it by an IoU of more than `threshold`; of equal
    scores the first is higher. All classes are computed at once: their boxes are the same, so IoUs are computed once,
    and each step takes every class's next box in the order of its scores.
    """
    from torchvision.ops import box_iou

    overlapping = (box_iou(boxes, boxes) > threshold).fill_diagonal_(False)
    staying = torch.ones(scores.shape[1], len(boxes), dtype=torch.bool, device=boxes.device)
    for following in scores.argsort(dim=0, descending=True, stable=True):  # (C,): one box a class
        # none of higher score that stays overlaps it, so only lower ones fall
        staying &= ~(overlapping[following] & staying.gather(1, following[:, None]))
    return staying.T
