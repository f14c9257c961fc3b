import subprocess
import sys


def test_torchvision_and_timm_can_be_imported_in_a_fresh_process():
    code = (
        "from pipeline.features.torchvision_cpu import declare_operators; declare_operators(); declare_operators();"
        "import torch, torchvision, timm; print(torch.ops.torchvision.nms.default._schema)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold)"), done.stderr
