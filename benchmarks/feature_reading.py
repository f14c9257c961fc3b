"""Time that training steps wait for shuffled features, and memory of the process.

    python benchmarks/feature_reading.py [--images 113287] [--folder DIR] [--step 0.025] [--batches 200]

The benchmark writes random features (--images 113287, COCO's training split: 17.2 GB, and as much again for h5py). It
reads an epoch of shuffled batches without training, each way of reading in its own process. The first reading is cold,
with the file dropped from the page cache, and the second is warm. The benchmark then waits --step seconds per batch, as
a process that trains on a GPU does, while `Batches` reads ahead. Memory is the process's own memory, and the pages of
the files that the process maps.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import torch
from printing import begin_table, show_progress

from pipeline.data.batches import Batches
from pipeline.data.feature_store import FILE, FeatureStore, FeatureWriter

CHUNKED = "chunked.h5"
POOLED = 2048
Read = Callable[[np.ndarray], object]


def open_store(folder: Path) -> Read:
    return FeatureStore(folder).read


def open_memory_map(folder: Path) -> Read:
    with h5py.File(folder / FILE) as file:
        mapped = [np.memmap(folder / FILE, "f2", "r", d.id.get_offset(), d.shape) for d in _get_datasets(file)]
    return lambda rows: [torch.from_numpy(values[rows]).float() for values in mapped]


def open_chunked(folder: Path) -> Read:
    data = _get_datasets(h5py.File(folder / CHUNKED))

    def read(rows: np.ndarray) -> list[torch.Tensor]:
        order = np.argsort(rows)  # h5py needs ascending rows
        return [torch.from_numpy(values[rows[order]][np.argsort(order)]).float() for values in data]

    return read


WAYS = {"by position (ours)": open_store, "NumPy memory map": open_memory_map, "h5py, a chunk a row": open_chunked}


@dataclass(frozen=True)
class Captions:
    """The part of the prepared data that `Batches` needs: one caption per image."""

    folder: Path
    images: int

    def __len__(self) -> int:
        return self.images

    @property
    def first(self) -> np.ndarray:
        return np.arange(self.images + 1)

    @property
    def tokens(self) -> np.ndarray:
        return np.zeros((self.images, 16), np.int16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, default=10**9, help="batches of an epoch; default: all")
    parser.add_argument("--step", type=float, nargs="+", default=[0.025, 3.0], help="seconds of a training step")
    parser.add_argument("--folder", type=Path, help="folder for the temporary files; default: the system's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        show_progress("writing features")
        write_features(folder, options.images, options.regions, options.size)
        size = (folder / FILE).stat().st_size
        print(f"{options.images} × {options.regions} × {options.size} in half precision, {size / 1e9:.1f} GB")
        columns = (
            "cold, ms a batch",
            "warm, ms a batch",
            "warm, CPU ms",
            "own memory, MiB",
            "mapped, MiB",
            "times ours",
        )
        print_row = begin_table("Reading shuffled batches", "by", *columns)
        baseline = None
        for name, opener in WAYS.items():
            *spent, own, mapped = run_in_process(
                read_epoch, folder, opener, options.images, options.batch, options.batches
            )
            baseline = baseline or spent
            cold, warm, processor = (f"{seconds * 1e3:.1f}" for seconds in spent)
            ratios = ", ".join(f"{seconds / base:.1f}" for seconds, base in zip(spent, baseline, strict=True))
            print_row(name, cold, warm, processor, f"{own:.0f}", f"{mapped:.0f}", ratios)
        columns = ("page cache", "first batch, ms", "median of the others, ms", "greatest, ms", "memory, MiB")
        print_row = begin_table("Waiting time of a training step", "step, s", *columns)
        for step in options.step:
            number = min(options.batches, max(5, int(30 / step)))
            for state in ("cold", "warm"):
                waits, memory = run_in_process(
                    measure_waits, folder, options.images, options.batch, number, step, state == "cold"
                )
                print_row(f"{step:.3f}", state, *format_waits(waits), f"{memory:.0f}")


def write_features(folder: Path, images: int, regions: int, size: int) -> None:
    rng = np.random.default_rng(0)
    pooled = rng.random((256, POOLED), np.float32).astype(np.float16)
    block = np.maximum(rng.standard_normal((256, regions, size), np.float32), 0).astype(np.float16)  # as after a ReLU
    with FeatureWriter(folder, images, POOLED, (regions, size)) as store, h5py.File(folder / CHUNKED, "w") as file:
        file.create_dataset("pooled", (images, POOLED), np.float16, chunks=(1, POOLED))
        file.create_dataset("regions", (images, regions, size), np.float16, chunks=(1, regions, size))
        for start in range(0, images, 256):
            rows = np.arange(start, min(start + 256, images))
            store.write(rows, pooled[: len(rows)], block[: len(rows)])
            file["pooled"][rows[0] : rows[-1] + 1] = pooled[: len(rows)]
            file["regions"][rows[0] : rows[-1] + 1] = block[: len(rows)]


def run_in_process(call: Callable, *arguments: object) -> tuple:
    """Run `call` in a new process with its own memory, and return its result."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(call, *arguments).result()


def read_epoch(
    folder: Path, opener: Callable[[Path], Read], images: int, batch: int, max_batches: int
) -> tuple[float, float, float, float, float]:
    """Return median seconds per batch, cold, warm and warm CPU, and the largest memory in MiB, own and mapped."""
    torch.set_num_threads(1)
    drop_from_page_cache(folder)
    read, times, memory = opener(folder), [], (0.0, 0.0)
    for _ in ("cold", "warm"):
        spent = []
        for rows in shuffle_batches(images, batch, max_batches):
            began = time.perf_counter(), time.process_time()
            read(rows)
            spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))
            memory = max(memory, measure_memory(), key=sum)
        times.append(np.median(spent, axis=0).tolist())
    (cold, _), (warm, processor) = times
    return cold, warm, processor, *memory


def measure_waits(
    folder: Path, images: int, batch: int, max_batches: int, step: float, cold: bool
) -> tuple[list[float], float]:
    """Return the seconds that each step waited for its batch, and the largest memory of the process in MiB."""
    torch.set_num_threads(1)
    if cold:
        drop_from_page_cache(folder)
    batches = Batches(Captions(folder, images), FeatureStore(folder), np.arange(images), batch, seed=0)
    waits, memory, epoch = [], 0.0, batches.epoch(0)
    for _ in range(min(max_batches, len(batches))):
        began = time.perf_counter()
        next(epoch)
        waits.append(time.perf_counter() - began)
        time.sleep(step)
        memory = max(memory, sum(measure_memory()))
    epoch.close()
    return waits, memory


def format_waits(waits: list[float]) -> tuple[str, str, str]:
    """Return the first wait, and the median and the greatest of the others, in ms; "–" where there are no others."""
    first, others = f"{waits[0] * 1e3:.1f}", waits[1:]
    return (first, f"{np.median(others) * 1e3:.2f}", f"{max(others) * 1e3:.1f}") if others else (first, "–", "–")


def shuffle_batches(images: int, batch: int, max_batches: int) -> Iterator[np.ndarray]:
    """Return the rows of shuffled batches; fewer images than `batch` make one batch, as in `Batches`."""
    batch = min(batch, images)
    order = np.random.default_rng(1).permutation(images)
    return (order[start : start + batch] for start in range(0, images - batch + 1, batch)[:max_batches])


def drop_from_page_cache(folder: Path) -> None:
    """Drop the HDF5 files of `folder` from the page cache."""
    for path in folder.glob("*.h5"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)  # unwritten pages cannot be dropped
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def measure_memory() -> tuple[float, float]:
    """Return this process's resident memory in MiB: its own, and pages of mapped files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, mapped = (int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
    return own, mapped


def _get_datasets(file: h5py.File) -> list[h5py.Dataset]:
    return [file["pooled"], file["regions"]]


if __name__ == "__main__":
    main()
