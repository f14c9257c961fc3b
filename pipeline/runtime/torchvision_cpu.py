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
    imported, and `nms` is the plain one below; `roi_align` has one of torchvision's own. Where they load nothing is
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

    # nms() asks this before it calls the operator; roi_align has its own name for it, and goes on without
    torchvision.extension._has_ops = lambda: True


def plain_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Non-maximum suppression: which boxes (n, 4) stay, by descending score, indices (m,).

    A box stays if no box that stays and has a higher score overlaps it by an IoU of more than `threshold`; of equal
    scores the first is higher.
    """
    from torchvision.ops import box_iou

    order = scores.argsort(descending=True, stable=True)
    overlapping = (box_iou(boxes[order], boxes[order]) > threshold).numpy()
    stays = torch.ones(len(order), dtype=torch.bool)
    staying = stays.numpy()
    for i, over in enumerate(overlapping):
        if staying[i]:
            staying[i + 1 :] &= ~over[i + 1 :]
    return order[stays]
