"""Small data sets on disk."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

WORDS = ["a red ball", "the red ball", "one ball", "a big red ball on grass", "a ball"]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SAYWHICH_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
    if not (folder / "flickr8k").is_dir():
        pytest.skip(f"no real data in {folder}; set SAYWHICH_TEST_DATA to a folder that has them")
    return folder


@pytest.fixture
def karpathy(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Writes a Karpathy-form file of `count` images, changed by `change`, and the images that were in it before."""

    def write(count: int = 8, change: Callable[[dict], None] = lambda data: None) -> tuple[Path, Path]:
        folder = tmp_path / "images"
        splits = ["train", "restval", "val", "test"]
        images = [
            {
                "filename": f"{i}.jpg",
                "filepath": "part" if i % 2 else "",
                "imgid": i,
                "split": splits[i % 4],
                "sentences": [
                    {"raw": f"{WORDS[k]}.", "tokens": WORDS[k].split(), "imgid": i, "sentid": 5 * i + k}
                    for k in range(1 + i % 5)
                ],
            }
            for i in range(count)
        ]
        for i, image in enumerate(images):
            path = folder / image["filepath"] / image["filename"]
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
        data = {"dataset": "balls", "images": images}
        change(data)
        annotations = tmp_path / "dataset_balls.json"
        annotations.write_text(json.dumps(data, indent=1))
        return annotations, folder

    return write
