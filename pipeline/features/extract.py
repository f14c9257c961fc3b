"""Every image through a network, into the store of features; memory does not grow with the number of images.

What is seen is first kept image by image in a work folder, by one process or by many that share it, each with a shard
of the images; a process that was killed goes on from there. Then the store is written from it.
"""

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
from pipeline.features.clip import OPEN_CLIP, ClipNetwork
from pipeline.features.detection import DETECTOR, FasterRCNN
from pipeline.features.extractor import Extractor, NetworkSettings
from pipeline.features.hub import PREFIX as CAPTIONER
from pipeline.features.hub import HubNetwork
from pipeline.features.images import open_image
from pipeline.features.networks import TORCHVISION, TimmNetwork, TorchvisionNetwork
from pipeline.features.projection import Projection
from pipeline.features.rows import CHUNK, Rows
from pipeline.features.word_detector import Captions, WordDetector, WordDetectorNetwork, squashed, train_detector
from pipeline.runtime.files import write_atomically
from pipeline.vocabulary import Vocabulary

AHEAD = 2  # batches of images that are decoded while the network sees one
WORD_DETECTOR = "word_detector"


class Images(Captions, Protocol):
    """M images with captions: a prepared data set."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def __len__(self) -> int: ...

    def rows(self, split: str) -> np.ndarray: ...

    def file(self, image: int) -> str: ...


class Writer(AbstractContextManager, Protocol):
    """An open store, whose `manifest` may be filled until it is closed."""

    manifest: dict[str, Any]

    def write(
        self,
        rows: np.ndarray,
        pooled: np.ndarray,
        regions: np.ndarray,
        region_count: np.ndarray | None = None,
        boxes: np.ndarray | None = None,
    ) -> None: ...


def extract(
    images: Images,
    root: Path,
    out: Path,
    writer: Callable[[Path, int, int, tuple[int, int], bool], Writer],
    work: Path,
    settings: NetworkSettings,
    *,
    batch: int,
    project: int | None = None,
    detector: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, dict[str, float]], None] = lambda epoch, report: None,
    shard: tuple[int, int] | None = None,
) -> None:
    """Write the features of all images, whose files lie below `root`, into the folder `out`.

    The network is word_detector, which is first trained on the training split by the settings `detector` (epochs,
    width, learning_rate, batch), or one that `open_network` knows. `project` reduces the regions by a PCA fitted on the
    training split; the pooled vector stays as it is. `writer` opens the store, (folder, M, P, (R, D), with boxes).
    Beside it stand the weights of the detector and of the projection.

    What is whole in the folder `work`, which belongs to this extraction alone, is not seen again, and the folder is
    removed at the end. With `shard` (k, n) only the k-th of n parts of the images is seen, into `work`. Images come
    in the same batches whatever is there already and however many shards there are, so the result is bit-equal.
    """
    work.mkdir(parents=True, exist_ok=True)

    def load(row: int, prepare: Callable[[Any], Tensor]) -> Tensor:
        path = root / images.file(row)
        try:
            return prepare(open_image(path))
        except FileNotFoundError:
            raise UserError(f"{path}: the image is missing; it was there when the data were prepared") from None

    seeing: Extractor
    if settings.network == WORD_DETECTOR:
        assert detector is not None
        if shard is not None:
            raise UserError("features.network: word_detector learns before it sees; run the stage without --shard")
        trained = _trained_detector(images, load, work, detector, settings.image_size, batch, seed, device, on_epoch)
        seeing = WordDetectorNetwork(trained, settings, device)
        seeing.description["detector"] = dict(detector)
    else:
        seeing = open_network(settings, device)
    rows = Rows(work, len(images), seeing.pooled_size, seeing.regions_shape, seeing.has_boxes)
    number, shards = shard or (1, 1)
    batches = -(-len(images) // batch)
    first, last = (min(batches * n // shards * batch, len(images)) for n in (number - 1, number))
    _see(images, rows, seeing, load, first, last, batch)
    if shard is not None:
        return
    out.mkdir(parents=True, exist_ok=True)
    if settings.network == WORD_DETECTOR:
        seeing.description["weights"] = _save(out / "detector.safetensors", dict(trained.state_dict()))
    _join(images, rows, out, writer, {**seeing.description, "cells": settings.cells, "project": project}, project)
    rows.remove()


def open_network(settings: NetworkSettings, device: torch.device | str = "cpu") -> Extractor:
    """The network of a name: torchvision/…, open_clip/…, hub/…, fasterrcnn_resnet50_fpn_v2, or any of timm."""
    if settings.network == DETECTOR:
        return FasterRCNN(settings, device)
    kinds: dict[str, Callable[..., Extractor]]
    kinds = {TORCHVISION: TorchvisionNetwork, OPEN_CLIP: ClipNetwork, CAPTIONER: HubNetwork}
    kind = next((kind for prefix, kind in kinds.items() if settings.network.startswith(prefix)), TimmNetwork)
    return kind(settings, device)


def _trained_detector(
    images: Images,
    load: Callable[[int, Callable[[Any], Tensor]], Tensor],
    work: Path,
    detector: Mapping[str, Any],
    image_size: int,
    batch: int,
    seed: int,
    device: torch.device | str,
    on_epoch: Callable[[int, dict[str, float]], None],
) -> WordDetector:
    """The detector, trained now, or before an extraction that was killed."""
    from safetensors.torch import load_file

    words, path = len(images.vocabulary) - 1, work / "detector.safetensors"  # UNK is no word
    if path.exists():
        trained = WordDetector(words, detector["width"])
        trained.load_state_dict(load_file(path))
        return trained
    training = images.rows("train")
    parts = [training[start : start + batch] for start in range(0, len(training), batch)]
    with tempfile.TemporaryDirectory(prefix=".pixels-", dir=work) as scratch:
        shape = (len(images), 3, image_size, image_size)  # a sparse file: only the training split is in it
        pixels = np.memmap(Path(scratch) / "pixels", np.uint8, "w+", shape=shape)
        for rows, batch_of in _loaded(lambda row: load(row, lambda image: squashed(image, image_size)), parts):
            pixels[rows] = torch.stack(batch_of).numpy()
        trained = train_detector(
            pixels, images, training, words, **detector, seed=seed, device=device, on_epoch=on_epoch
        )
    _save(path, dict(trained.state_dict()))
    return trained


def _see(
    images: Images,
    rows: Rows,
    seeing: Extractor,
    load: Callable[[int, Callable[[Any], Tensor]], Tensor],
    first: int,
    last: int,
    batch: int,
) -> None:
    """See the images first … last − 1, in whole batches, as far as they are not whole in `rows`."""
    whole = rows.whole()
    starts = range(first, last, batch)
    parts = [np.arange(start, min(start + batch, last)) for start in starts]
    parts = [part for part in parts if not whole[part].all()]
    if not parts:
        return
    with rows.writing(first, last) as file:
        for part, tensors in _loaded(lambda row: load(row, seeing.prepare), parts):
            finite = file.write(part, seeing(tensors))
            if not finite.all():
                name = images.file(int(part[~finite][0]))
                raise UserError(f"{name}: a feature is infinite or NaN in half precision; the network does not suit")


def _join(
    images: Images,
    rows: Rows,
    out: Path,
    writer: Callable[[Path, int, int, tuple[int, int], bool], Writer],
    description: dict[str, Any],
    project: int | None,
) -> None:
    """Write the store from what was seen, its regions projected where `project` says so."""
    whole = rows.whole()
    if not whole.all():
        raise UserError(
            f"{rows.folder}: row {int(np.argmin(whole))} is damaged as soon as it is written; look at the disk"
        )
    (most, size), pooled_size = rows.record["regions"].shape, rows.record["pooled"].shape[0]
    projection = None
    if project is not None:
        projection = _fitted(rows, images.rows("train"), most, project)
        saved = _save(out / "projection.safetensors", {"mean": projection.mean, "components": projection.components})
        description = {**description, "projection": {**saved, "explained": round(projection.explained, 6)}}
    has_boxes = "boxes" in (rows.record.names or ())
    with writer(out, len(images), pooled_size, (most, project or size), has_boxes) as store:
        store.manifest.update(description)
        for start in range(0, len(images), CHUNK):
            part = np.arange(start, min(start + CHUNK, len(images)))
            records = rows.read(part)
            regions, count = records["regions"], records["region_count"]
            if projection is not None:
                regions = projection(_wide(regions)).numpy() * (np.arange(most) < count[:, None])[..., None]
            store.write(part, records["pooled"], regions, count, records["boxes"] if has_boxes else None)


def _fitted(rows: Rows, training: np.ndarray, most: int, project: int) -> Projection:
    """The projection of the training split's regions."""

    def parts() -> Iterator[Tensor]:
        for start in range(0, len(training), CHUNK):
            records = rows.read(training[start : start + CHUNK])
            yield _wide(records["regions"][np.arange(most) < records["region_count"][:, None]])

    return Projection.fit(parts(), project)


def _loaded(load: Callable[[int], Tensor], parts: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, list[Tensor]]]:
    """Images in batches, whose rows `parts` are, loaded in threads while the consumer works on those before."""
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(total=sum(map(len, parts)), desc="images", unit="", disable=None) as bar,
    ):
        waiting: deque[tuple[np.ndarray, list[Future[Tensor]]]] = deque()

        def take() -> tuple[np.ndarray, list[Tensor]]:
            rows, futures = waiting.popleft()
            bar.update(len(rows))
            return rows, [future.result() for future in futures]

        try:
            for rows in parts:
                waiting.append((rows, [pool.submit(load, int(row)) for row in rows]))
                if len(waiting) > AHEAD:
                    yield take()
            while waiting:
                yield take()
        finally:
            pool.shutdown(cancel_futures=True)


def _wide(half: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(half)).float()


def _save(path: Path, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Write a safetensors file; returns what the manifest tells of it."""
    from safetensors.torch import save

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    write_atomically(path, content)
    return {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
