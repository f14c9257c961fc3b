"""Claim: contiguous float16 is the quickest layout to read shuffled batches of features from.

The benchmark writes the same random features in each layout. For each layout it reads batches of 128 shuffled rows as
float32, and prints the median time of a batch. Run `python benchmarks/feature_store.py [--images 4000] [--regions 25]
[--size 256]`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from printing import begin_table, show_progress

Read = Callable[[np.ndarray], np.ndarray]


def open_h5py(path: Path) -> Read:
    data = h5py.File(path, "r")["regions"]

    def read(rows: np.ndarray) -> np.ndarray:
        order = np.argsort(rows)  # h5py needs ascending rows
        values = data[rows[order]]
        return values[np.argsort(order)].astype(np.float32)

    return read


def open_h5py_rows(path: Path) -> Read:
    data = h5py.File(path, "r")["regions"]
    return lambda rows: np.stack([data[row] for row in rows]).astype(np.float32)


def open_memory_map(path: Path) -> Read:
    with h5py.File(path, "r") as file:
        offset, shape, dtype = file["regions"].id.get_offset(), file["regions"].shape, file["regions"].dtype
    mapped = np.memmap(path, dtype, "r", offset, shape)
    return lambda rows: mapped[rows].astype(np.float32)


def open_torch_memory_map(path: Path) -> Read:
    with h5py.File(path, "r") as file:
        offset, shape, dtype = file["regions"].id.get_offset(), file["regions"].shape, file["regions"].dtype
    mapped = np.memmap(path, dtype, "r", offset, shape)

    def read(rows: np.ndarray) -> np.ndarray:
        values = np.empty((len(rows), *shape[1:]), np.float32)
        torch.from_numpy(values).copy_(torch.from_numpy(mapped[rows]))
        return values

    return read


def load_values(path: Path) -> Read:
    with h5py.File(path, "r") as file:
        values = file["regions"][:].astype(np.float32)
    return lambda rows: values[rows]


LAYOUTS = {  # name: dtype, options of the data set (chunks None: a chunk is one row), reader
    "float16 contiguous, memory map, torch's cast": (np.float16, {}, open_torch_memory_map),
    "float16 contiguous, memory map, numpy's cast": (np.float16, {}, open_memory_map),
    "float32 contiguous, memory map": (np.float32, {}, open_memory_map),
    "float16 contiguous, h5py": (np.float16, {}, open_h5py),
    "float16 contiguous, h5py row by row": (np.float16, {}, open_h5py_rows),
    "float16 chunk = row, h5py": (np.float16, {"chunks": None}, open_h5py),
    "float16 chunk = row, h5py row by row": (np.float16, {"chunks": None}, open_h5py_rows),
    "float16 chunk = row, gzip 4, row by row": (np.float16, {"chunks": None, "compression": 4}, open_h5py_rows),
    "float32 in memory (4 bytes a value kept)": (np.float16, {}, load_values),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--regions", type=int, default=25)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=15)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (arguments.images, arguments.regions, arguments.size)
    values = np.maximum(rng.standard_normal(shape, np.float32), 0).astype(np.float16)  # as after a ReLU: half zeros
    with tempfile.TemporaryDirectory() as folder:
        results = {}
        for name, (dtype, options, opener) in LAYOUTS.items():
            show_progress(name)
            path = Path(folder) / f"{len(results)}.h5"
            options = {key: (1, *shape[1:]) if key == "chunks" else value for key, value in options.items()}
            with h5py.File(path, "w") as file:
                file.create_dataset("regions", data=values, dtype=dtype, **options)
            read, times = opener(path), []
            for _ in range(arguments.batches):
                rows = rng.permutation(arguments.images)[:128]
                start = time.perf_counter()
                batch = read(rows)
                times.append(time.perf_counter() - start)
                assert np.array_equal(batch, values[rows].astype(np.float32))
            results[name] = (float(np.median(times)), path.stat().st_size)
    baseline = next(iter(results.values()))[0]
    caption = f"Layouts of {' × '.join(map(str, shape))} features: 128 shuffled rows, file in the page cache"
    print_row = begin_table(caption, "layout", "ms", "times", "MiB", first=44)
    for name, (seconds, size) in results.items():
        print_row(name, f"{seconds * 1e3:.2f}", f"{seconds / baseline:.1f}", f"{size / 2**20:.1f}")


if __name__ == "__main__":
    main()
