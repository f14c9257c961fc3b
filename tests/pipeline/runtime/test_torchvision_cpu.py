import subprocess
import sys

import pytest
import torch

from pipeline.runtime.torchvision_cpu import declare_operators, plain_nms


@pytest.mark.slow
def test_torchvision_and_timm_can_be_imported_in_a_fresh_process():
    code = (
        "from pipeline.runtime.torchvision_cpu import declare_operators; declare_operators(); declare_operators();"
        "import torch, torchvision, timm; print(torch.ops.torchvision.nms.default._schema)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold)"), done.stderr


def iou(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / area if area else 0.0


def compute_nms(boxes, scores, threshold):
    """Keep the box with the highest score, drop the boxes whose IoU with it is above `threshold`, and repeat."""
    remaining, kept = sorted(range(len(boxes)), key=lambda i: -scores[i]), []
    while remaining:
        kept.append(remaining.pop(0))
        remaining = [i for i in remaining if iou(boxes[kept[-1]], boxes[i]) <= threshold]
    return kept


def draw_boxes(count, seed):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 20, (count, 2, 2), generator=generator).double()
    boxes = torch.cat([corners.amin(1), corners.amax(1) + torch.randint(0, 2, (count, 2), generator=generator)], 1)
    # some scores are equal and some boxes are empty
    return boxes, torch.randint(0, 30, (count,), generator=generator).double()


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_plain_nms_follows_the_definition(threshold):
    declare_operators()
    for seed, count in enumerate((0, 1, 2, 10, 60)):
        boxes, scores = draw_boxes(count, seed)
        kept = plain_nms(boxes, scores, threshold)
        assert kept.tolist() == compute_nms(boxes.tolist(), scores.tolist(), threshold)
        assert kept.dtype == torch.int64


def test_torchvisions_functions_call_the_plain_nms():
    declare_operators()
    from torchvision.ops import batched_nms, nms, roi_align

    boxes, scores = draw_boxes(60, 7)
    boxes, scores = boxes.float(), torch.randperm(60).float()
    assert nms(boxes, scores, 0.5).tolist() == compute_nms(boxes.tolist(), scores.tolist(), 0.5)
    classes = torch.arange(60) % 3
    expected = set()
    for c in range(3):
        members = torch.where(classes == c)[0]
        expected |= set(members[compute_nms(boxes[members].tolist(), scores[members].tolist(), 0.5)].tolist())
    assert set(batched_nms(boxes, scores, classes, 0.5).tolist()) == expected
    # each value is its column; aligned=True subtracts 0.5 from a bin's centre
    ramp = torch.arange(8.0).expand(1, 1, 8, 8)
    with torch.compiler.set_stance("force_eager"):
        pooled = roi_align(ramp, [torch.tensor([[2.0, 1.0, 6.0, 5.0]])], 2, 1.0, 2, aligned=True)
    torch.testing.assert_close(pooled[0, 0], torch.tensor([[2.5, 4.5], [2.5, 4.5]]))
