"""Claim: on a CPU, extraction processes at least 0.8 times as many images per second as its network alone.

Three times are measured for each extractor. The first is that of the network alone on prepared images in memory. The
second is that of the whole extraction of the same images from files into a store, without the loading of the network.
The third is that of decoding and preprocessing in one process.
Weights are random: the speed of all networks but Faster R-CNN does not depend on them. Run on an idle machine:

    python -m benchmarks.extraction FOLDER [--count 512] [--batch 32] [--networks resnet101 open_clip/ViT-B-32 …]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.printing import begin_table
from pipeline.features.clip import OPEN_CLIP
from pipeline.features.detection import DETECTOR
from pipeline.features.extract import extract, open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.features.images import open_image
from pipeline.features.networks import TORCHVISION, build_torchvision_model
from pipeline.runtime.torchvision_cpu import declare_operators

NETWORKS = ("mobilenetv2_100", "resnet101", "open_clip/ViT-B-32", DETECTOR)


class Photos:
    """At most `count` images below a folder, in place of prepared data."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        self.files = [str(path.relative_to(folder)) for path in files[:count]]

    def __len__(self) -> int:
        return len(self.files)

    def rows(self, split: str) -> np.ndarray:
        return np.arange(len(self))

    def file(self, image: int) -> str:
        return self.files[image]


def draw_weights(name: str, path: Path) -> None:
    """Write the network's initial weights to `path`."""
    declare_operators()
    import open_clip
    import timm

    if name.startswith(OPEN_CLIP):
        model = open_clip.create_model(name.removeprefix(OPEN_CLIP), pretrained_text=False)
    elif name == DETECTOR or name.startswith(TORCHVISION):
        model = build_torchvision_model(name.removeprefix(TORCHVISION), {})
    else:
        model = timm.create_model(name)
    save_file(model.state_dict(), path)


def measure_seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(name: str, photos: Photos, options: argparse.Namespace, device: str, scratch: Path) -> list[str]:
    """Measure one network, and return the cells of its row after the name."""
    draw_weights(name, scratch / "drawn.safetensors")
    boxes = {"fixed": 36} if name == DETECTOR else None
    settings = NetworkSettings(name, options.size, str(scratch / "drawn.safetensors"), boxes=boxes)
    network, paths = open_network(settings, device), [photos.folder / file for file in photos.files]
    decode_seconds = measure_seconds(lambda: [open_image(path) for path in paths])
    images = [open_image(path) for path in paths]
    prepare_seconds = measure_seconds(lambda: [network.prepare(image) for image in images])
    tensors = [network.prepare(image) for image in images]

    def run_network() -> None:
        for start in range(0, len(tensors), options.batch):
            network(tensors[start : start + options.batch])

    def run_extraction(run: int) -> None:
        out = scratch / str(run)
        work = out / "work"
        extract(photos, photos.folder, out, work, settings, batch=options.batch, device=device)

    network(tensors[: options.batch])  # warm-up
    network_seconds = min(measure_seconds(run_network) for _ in range(options.repeat))
    open_seconds = measure_seconds(lambda: open_network(settings, device))
    extract_seconds = (
        min(measure_seconds(lambda run=run: run_extraction(run)) for run in range(options.repeat)) - open_seconds
    )
    n = len(paths)
    rates = f"{n / network_seconds:.1f}", f"{n / extract_seconds:.1f}", f"{network_seconds / extract_seconds:.2f}"
    share = (decode_seconds + prepare_seconds) / extract_seconds
    return [*rates, f"{decode_seconds / n * 1e3:.1f}", f"{prepare_seconds / n * 1e3:.1f}", f"{share:.0%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--repeat", type=int, default=3, help="runs of network and extraction; the fastest counts")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    options = parser.parse_args()
    photos, device = Photos(options.images, options.count), "cuda" if torch.cuda.is_available() else "cpu"
    print(
        f"{len(photos)} images, {device}, {torch.get_num_threads()} threads, "
        f"batch {options.batch}, {options.size} pixels"
    )
    columns = ("alone", "whole", "ratio", "decoding, ms", "preparing, ms", "both, of one core")
    print_row = begin_table("Images a second of a network alone and of the whole extraction", "network", *columns)
    for name in options.networks:
        with tempfile.TemporaryDirectory() as scratch:
            print_row(name, *measure(name, photos, options, device, Path(scratch)))


if __name__ == "__main__":
    main()
