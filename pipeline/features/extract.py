"""Every image through a network, into the store of features; memory does not grow with the number of images."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.features.networks import Extractor, TimmNetwork
from pipeline.features.projection import Projection
from pipeline.features.word_detector import Captions, WordDetectorNetwork, squashed, train_detector
from pipeline.files import write_atomically
from pipeline.vocabulary import Vocabulary

AHEAD = 2  # batches of images that are decoded while the network sees one
WORD_DETECTOR = "word_detector"


class Images(Captions, Protocol):
    """M images with captions: a prepared data set."""

    vocabulary: Vocabulary

    def __len__(self) -> int: ...

    def rows(self, split: str) -> np.ndarray: ...

    def file(self, image: int) -> str: ...


class Writer(AbstractContextManager, Protocol):
    """An open store, whose `manifest` may be filled until it is closed."""

    manifest: dict[str, Any]

    def write(
        self, rows: np.ndarray, pooled: np.ndarray, regions: np.ndarray, region_count: np.ndarray | None = None
    ) -> None: ...


def extract(
    images: Images,
    root: Path,
    out: Path,
    writer: Callable[[Path, int, int, tuple[int, int]], Writer],
    *,
    network: str,
    weights: str | None = None,
    options: Mapping[str, Any] | None = None,
    image_size: int,
    batch: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    cells: int | None = None,
    project: int | None = None,
    detector: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, dict[str, float]], None] = lambda epoch, report: None,
) -> None:
    """Write the features of all images, whose files lie below `root`, into the folder `out`.

    `network` is word_detector, which is first trained on the training split by the settings `detector` (epochs, width,
    learning_rate, batch), or a network of timm with `weights` (hub, or a safetensors file). `project` reduces the
    regions by a PCA fitted on the training split; the pooled vector stays as it is. `writer` opens the store,
    (folder, M, P, (R, D)). Beside it stand the weights of the detector and of the projection.
    """
    out.mkdir(parents=True, exist_ok=True)

    def load(row: int, prepare: Callable[[Any], Tensor]) -> Tensor:
        return prepare(_opened(root / images.file(row)))

    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=out) as scratch:
        seeing: Extractor
        if network == WORD_DETECTOR:
            assert detector is not None
            pixels = np.memmap(Path(scratch) / "pixels", np.uint8, "w+", shape=(len(images), 3, image_size, image_size))
            for rows, batch_of in _loaded(lambda row: load(row, lambda i: squashed(i, image_size)), len(images), batch):
                pixels[rows] = torch.stack(batch_of).numpy()
            words = len(images.vocabulary) - 1  # UNK is none
            trained = train_detector(
                pixels, images, images.rows("train"), words, **detector, seed=seed, device=device, on_epoch=on_epoch
            )
            seeing = WordDetectorNetwork(trained, image_size, cells, device)
            saved = _save(out / "detector.safetensors", dict(trained.state_dict()))
            description = {**seeing.description, "detector": dict(detector), "weights": saved}
            tensors = _loaded(lambda row: torch.from_numpy(pixels[row]), len(images), batch)
        else:
            seeing = TimmNetwork(network, weights or "hub", options or {}, image_size, mean, std, cells, device)
            description = dict(seeing.description)
            tensors = _loaded(lambda row: load(row, seeing.prepare), len(images), batch)
        seen = ((rows, [t.float().cpu().numpy() for t in seeing(batch_of)]) for rows, batch_of in tensors)
        shape = (len(images), seeing.pooled_size, seeing.regions_shape)
        description = {**description, "cells": cells, "project": project}
        if project is None:
            with writer(out, *shape) as store:
                store.manifest.update(description)
                for rows, (pooled, regions, count) in seen:
                    store.write(rows, pooled, regions, count)
            return
        _write_projected(images, out, writer, Path(scratch), seen, shape, project, description)


def _write_projected(
    images: Images,
    out: Path,
    writer: Callable[[Path, int, int, tuple[int, int]], Writer],
    scratch: Path,
    seen: Iterator[tuple[np.ndarray, list[np.ndarray]]],
    shape: tuple[int, int, tuple[int, int]],
    project: int,
    description: dict[str, Any],
) -> None:
    """Keep the regions on disk, fit the projection on the training split's, then write all images' projected."""
    count, (most, size) = shape[0], shape[2]
    whole = np.memmap(scratch / "regions", np.float16, "w+", shape=(count, most, size))
    vectors = np.memmap(scratch / "pooled", np.float16, "w+", shape=(count, shape[1]))
    counts = np.empty(count, np.int32)
    for rows, (pooled, regions, region_count) in seen:
        whole[rows], vectors[rows], counts[rows] = regions, pooled, region_count
    training = images.rows("train")
    exists = np.arange(most) < counts[:, None]
    parts = (training[start : start + 64] for start in range(0, len(training), 64))
    projection = Projection.fit((_wide(whole[rows][exists[rows]]) for rows in parts), project)
    saved = _save(out / "projection.safetensors", {"mean": projection.mean, "components": projection.components})
    with writer(out, count, shape[1], (most, project)) as store:
        store.manifest.update({**description, "projection": {**saved, "explained": round(projection.explained, 6)}})
        for start in range(0, count, 64):
            rows = np.arange(start, min(start + 64, count))
            projected = projection(_wide(whole[rows])).numpy() * exists[rows][..., None]
            store.write(rows, vectors[rows], projected, counts[rows])


def _loaded(load: Callable[[int], Tensor], count: int, batch: int) -> Iterator[tuple[np.ndarray, list[Tensor]]]:
    """Images 0 … count − 1 in batches, loaded in threads while the consumer works on those before."""
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(total=count, desc="images", unit="", disable=None) as bar,
    ):
        waiting: deque[tuple[np.ndarray, list[Future[Tensor]]]] = deque()

        def take() -> tuple[np.ndarray, list[Tensor]]:
            rows, futures = waiting.popleft()
            bar.update(len(rows))
            return rows, [future.result() for future in futures]

        try:
            for start in range(0, count, batch):
                rows = np.arange(start, min(start + batch, count))
                waiting.append((rows, [pool.submit(load, int(row)) for row in rows]))
                if len(waiting) > AHEAD:
                    yield take()
            while waiting:
                yield take()
        finally:
            pool.shutdown(cancel_futures=True)


def _opened(path: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise UserError(f"{path}: the image is missing; it was there when the data were prepared") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path}: the image cannot be decoded ({str(error).splitlines()[0]})") from None


def _wide(half: np.ndarray) -> Tensor:
    return torch.from_numpy(half).float()


def _save(path: Path, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Write a safetensors file; returns what the manifest tells of it."""
    from safetensors.torch import save

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    write_atomically(path, content)
    return {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
