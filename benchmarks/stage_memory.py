"""Peak memory of stages on a toy world, and on one with several times the images."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from printing import show_progress

ROOT = Path(__file__).parents[1]
STAGES = {
    "draw": ["--dataset", "scenes"],
    "prepare": [],
    "features": ["--features", "main"],
    "features, judge": ["--features", "judge"],
    "pretrain, listener": ["--role", "listener"],
    "pretrain, speaker": ["--role", "speaker"],
    "pretrain, judge": ["--role", "judge"],
    "train": ["--method", "psst_multinomial"],
    "adapt": ["--method", "psst_multinomial"],
    "evaluate": ["--method", "psst_multinomial"],
}
SHOWN = ("draw", "prepare", "features", "pretrain, speaker", "train", "adapt", "evaluate")


def measure_peaks(folder: Path, images: int, times: int) -> Iterator[tuple[str, float, float]]:
    """Yield each stage of SHOWN with its peak memory in MiB for `images` images, and for `times` as many.

    A quarter of the images is in the validation split, and as many are in the test split.
    """
    small, large = (_measure_stages(folder / f"{n}", n) for n in (images, times * images))
    yield from ((name, small[name], large[name]) for name in SHOWN)


def _measure_stages(folder: Path, images: int) -> dict[str, float]:
    from toy_world import make_toy_params

    params = make_toy_params()
    params["draw"]["scenes"] |= {"images": images, "val": images // 32 * 8, "test": images // 32 * 8}
    folder.mkdir(parents=True)
    for name in ("pipeline", "stages"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "dvc.yaml", folder)
    (folder / "params.yaml").write_text(json.dumps(params), encoding="utf-8")
    found = {}
    for name, options in STAGES.items():
        show_progress(f"memory of {name} with {images} images")
        found[name] = _measure_process(folder, [f"stages.{name.partition(',')[0]}", *options])
    return found


def _measure_process(folder: Path, words: list[str]) -> float:
    """Run a module of Python in `folder`, and return the peak resident memory in MiB of its process."""
    environment = os.environ | {"SAYWHICH_TRACKING": "off", "OMP_NUM_THREADS": "1"}
    log = folder / "output.txt"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=folder, env=environment, stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # Popen must not wait for the process again
    if status:
        raise SystemExit(log.read_text(encoding="utf-8")[-2000:])
    return used.ru_maxrss / 1024
