"""Peak memory of stages on a toy world, and on a larger world with a multiple of its images."""

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
REPORTED_STAGES = ("draw", "prepare", "features", "pretrain, speaker", "train", "adapt", "evaluate")


# This program starts a command and writes its peak memory in KiB to a file. On Linux a process starts with the peak of
# its parent, so the parent must be small.
LAUNCHER = """
import os, sys
peak, *command = sys.argv[1:]
_, status, used = os.wait4(os.posix_spawn(command[0], command, os.environ), 0)
open(peak, "w").write(str(used.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status) != 0)
"""


def measure_peaks(folder: Path, images: int, factor: int) -> Iterator[tuple[str, float, float]]:
    """Yield each of REPORTED_STAGES with its peak memory in MB for `images` and for `factor` · `images` images.

    About a quarter of the images is in the validation split, and as many are in the test split.
    """
    small, large = (_measure_stages(folder / f"{n}", n) for n in (images, factor * images))
    yield from ((name, small[name], large[name]) for name in REPORTED_STAGES)


def _measure_stages(folder: Path, images: int) -> dict[str, float]:
    from toy_world import make_toy_params

    params = make_toy_params()
    params["draw"]["scenes"] |= {"images": images, "val": images // 32 * 8, "test": images // 32 * 8}
    folder.mkdir(parents=True)
    for name in ("pipeline", "stages"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "dvc.yaml", folder)
    (folder / "params.yaml").write_text(json.dumps(params), encoding="utf-8")
    peaks = {}
    for name, options in STAGES.items():
        show_progress(f"memory of {name} with {images} images")
        peaks[name] = measure_process(folder, [f"stages.{name.partition(',')[0]}", *options])
    return peaks


def measure_process(folder: Path, arguments: list[str]) -> float:
    """Run a Python module in `folder`, and return the peak resident memory in MB of its process.

    `arguments` are the module's name and its options. Raises SystemExit if the module fails.
    """
    environment = os.environ | {"SAYWHICH_TRACKING": "off", "OMP_NUM_THREADS": "1"}
    log, peak = folder / "output.txt", folder / "peak.txt"
    command = [sys.executable, "-S", "-c", LAUNCHER, str(peak), sys.executable, "-m", *arguments]
    with open(log, "wb") as output:
        process = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output, check=False)
    if process.returncode:
        raise SystemExit(log.read_text(encoding="utf-8")[-2000:])
    return int(peak.read_text(encoding="utf-8")) * 1024 / 1e6
