"""Claim: weights, preprocessing and image decoding fit together: a real network classifies real photos correctly.

The benchmark prints the highest of ImageNet's classes for photos of a folder, for comparison by eye. The photos are at
equal distances in the order of their names. Any classifier of timm works:

    python -m benchmarks.top_predictions FOLDER --weights mobilenetv2_100_imagenet.safetensors --count 20
"""

import argparse
import json
from pathlib import Path

import torch

from pipeline.features.extractor import NetworkSettings
from pipeline.features.images import open_image
from pipeline.features.networks import TimmNetwork


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, metavar="FOLDER")
    parser.add_argument("--network", default="mobilenetv2_100", help="name of a network of timm")
    parser.add_argument("--weights", default="hub", help="hub, or a safetensors file")
    parser.add_argument("--options", type=json.loads, default={"pad_type": "same"}, help="its options, as JSON")
    parser.add_argument("--mean", type=float, nargs=3, default=[0.5] * 3)
    parser.add_argument("--std", type=float, nargs=3, default=[0.5] * 3)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--count", type=int, default=20)
    given = parser.parse_args()
    settings = NetworkSettings(given.network, given.size, given.weights, given.options, given.mean, given.std)
    network = TimmNetwork(settings)
    from timm.data import ImageNetInfo

    names = ImageNetInfo()
    files = sorted(path for path in given.images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    chosen = [files[i * len(files) // given.count] for i in range(min(given.count, len(files)))]
    print("| photo | first | share | second | share |\n| --- | --- | ---: | --- | ---: |")
    for path in chosen:
        with torch.inference_mode():
            shares = network.model(network.prepare(open_image(path))[None]).softmax(1)[0]
        best = [f"{names.index_to_description(int(i))} | {shares[i]:.2f}" for i in shares.topk(2).indices]
        print(f"| {path.name} | {' | '.join(best)} |")


if __name__ == "__main__":
    main()
