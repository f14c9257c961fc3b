"""Feature extraction of all images into the store; only the features of a few batches are in memory at a time.

Features are first written batch by batch into a work folder, by one process, or by one process per shard of the
images. After a kill, the next run keeps the complete batches. The store is then written from the batches.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import safetensors.torch
import torch
from safetensors.torch import save
from torch import Tensor
from tqdm import tqdm

from pipeline.data.feature_store import FeatureWriter
from pipeline.errors import UserError, summarise_error
from pipeline.features.clip import OPEN_CLIP, ClipNetwork
from pipeline.features.detection import DETECTOR, FasterRCNN
from pipeline.features.detector_training import DetectionTask, train_detector
from pipeline.features.extractor import Extractor, NetworkSettings
from pipeline.features.feature_parts import FeatureParts
from pipeline.features.film_extractor import COLUMNS, FrameCaptions, open_film, wrap_for_films
from pipeline.features.hub_dual_tower import open_hub_tower
from pipeline.features.hub_tower import PREFIX as FROM_HUB
from pipeline.features.images import open_image
from pipeline.features.network_weights import HUB, UnreachableWeightsError
from pipeline.features.networks import TORCHVISION, TimmNetwork, TorchvisionNetwork
from pipeline.features.object_detector import AnnotatedImage, ObjectDetection
from pipeline.features.projection import FittedTransforms, Projection, Standardisation
from pipeline.features.texture import SIZE, TrainingTexture, compute_texture_statistics
from pipeline.features.word_detector import CaptionReferences, WordDetectorNetwork, WordPrediction, resize_square
from pipeline.runtime.cores import count_cores
from pipeline.runtime.files import allocate, read_checked, write_atomically, write_checked
from pipeline.runtime.untrusted import resolve_inside
from pipeline.vocabulary import Vocabulary

PREFETCH = 2  # batches of images decoded while the network processes one
CHUNK = 64  # images whose features are read together
TEXTURE_IMAGES = {"train": 2000, "val": 1000}  # for the training texture: the largest number of images by split
WORD_DETECTOR, OBJECT_DETECTOR = TRAINED_HERE = ("word_detector", "object_detector")  # networks that this stage trains
FALLBACK = (
    "Until then a word detector is trained on these images instead (features.{0}.detector), on far less data: expect "
    "captions that fit many images. With a network connection, run `dvc repro -f features@{0}` and then `dvc repro`"
)


class CaptionedImages(CaptionReferences, Protocol):
    """A prepared data set of images with captions."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def __len__(self) -> int: ...

    def rows(self, split: str) -> np.ndarray: ...

    def file(self, image: int) -> str: ...


Load = Callable[[int, Callable[[Any], Tensor]], Tensor]  # arguments: an image's row, and the function that prepares it


def extract(
    images: CaptionedImages,
    root: Path,
    out: Path,
    work: Path,
    settings: NetworkSettings,
    *,
    batch: int,
    name: str = "main",
    pca_dim: int | None = None,
    horizontal_flip: bool = False,
    detector: Mapping[str, Any] | None = None,
    objects: Sequence[AnnotatedImage] = (),
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, dict[str, float]], None] = lambda epoch, report: None,
    shard: tuple[int, int] | None = None,
) -> None:
    """Write the features of all images, whose files lie below `root`, into the folder `out`; messages contain `name`.

    `word_detector` and `object_detector` are first trained on the training split, from captions or from `objects`, the
    annotations of all images. Their settings `detector` are epochs, width, learning_rate, batch, horizontal_flip and
    seed. `open_network` builds any other network. Where its weights cannot be fetched and `detector` is given, a
    `word_detector` replaces it, with a warning on stderr. With `settings.frames` the images are films, and `batch`
    counts frames. A detector is then trained on single frames, and `objects` are annotations of frames, film by film.
    `pca_dim` reduces the regions by a PCA fitted on the training split. Vectors of `mean_and_max` or `times` are
    standardised over the training split. With `horizontal_flip`, features of the mirror images are written, too.
    Separate files in `out` hold the detector's weights, the projection, the scale and the training split's texture, as
    far as they exist.

    The folder `work` belongs to this extraction and its shards. Its complete batches are not computed again, and it is
    removed after `out` is written. With `shard` (k, n), only the batches of the k-th of n parts of the images are
    computed: `work` stays, and `out` is not written. Batches do not depend on existing results or on the number of
    shards, so the result is bit-equal. Raises UserError for an image that is missing or cannot be decoded, and for
    features that are not finite in half precision. Raises UserError for `shard` with a detector that is trained first,
    and as `open_network`, `train_detector` and `Projection.fit` do.
    """
    work.mkdir(parents=True, exist_ok=True)

    frames = settings.frames or 1
    open_frames = partial(open_film, frames=frames, rate=settings.frames_per_second)
    batch = max(batch // frames, 1)

    def load(row: int, prepare: Callable[[Any], Tensor]) -> Tensor:
        path = resolve_inside(root, images.file(row))
        try:
            return prepare(open_image(path) if settings.frames is None else open_frames(path))
        except FileNotFoundError:
            raise UserError(
                f"{path}: the image is missing; it was there when the data were prepared, so restore it"
            ) from None

    network: Extractor
    parts_folder = work
    if settings.network not in TRAINED_HERE:
        try:
            network = open_network(settings, device)
        except UnreachableWeightsError as error:
            if detector is None:
                raise
            tqdm.write(f"warning: {error}. {FALLBACK.format(name)}", file=sys.stderr)
            vector: Literal["times"] | None = "times" if settings.vector == "times" else None
            settings = replace(
                settings, network=WORD_DETECTOR, weights=HUB, options={}, mean=None, std=None, boxes=None, vector=vector
            )
            parts_folder = work / WORD_DETECTOR
            parts_folder.mkdir(exist_ok=True)
    if settings.network in TRAINED_HERE:
        assert detector is not None
        if shard is not None:
            raise UserError(
                f"features.{name}.network: {settings.network} is trained first; run the stage without --shard"
            )
        captions = images if frames == 1 else FrameCaptions(images, frames)
        task: DetectionTask = WordPrediction(captions, len(images.vocabulary) - 1)  # without UNK
        if settings.network == OBJECT_DETECTOR:
            task = ObjectDetection(objects)
        trained_detector = _load_or_train_detector(
            images, task, load, parts_folder, detector, settings.image_size, frames, batch, device, on_epoch
        )
        network = wrap_for_films(WordDetectorNetwork(trained_detector, settings, device), settings)
        network.description["detector"] = dict(detector)
    views = [
        FeatureParts(parts_folder, batch),
        *([FeatureParts(parts_folder / "mirrored", batch)] if horizontal_flip else []),
    ]
    number, shards = shard or (1, 1)
    batches = _split_rows(np.arange(len(images)), batch)
    own_batches = batches[len(batches) * (number - 1) // shards : len(batches) * number // shards]
    for view, mirrored in zip(views, (False, True), strict=False):
        _compute_features(images, view, network, load, own_batches, mirrored)
    if shard is not None:
        return
    out.mkdir(parents=True, exist_ok=True)
    if settings.network in TRAINED_HERE:
        network.description["weights"] = _save(out / "detector.safetensors", trained_detector.state_dict())
    training, held_out = (_compute_textures(images, split, load, network.prepare, batch) for split in TEXTURE_IMAGES)
    if texture := TrainingTexture.fit(training, held_out):
        network.description["texture"] = _save(out / "texture.safetensors", vars(texture))
    network.description |= {"cells": settings.grid_size, "project": pca_dim, "vector": settings.vector}
    _write_store(images, views, network, out, pca_dim, settings.vector is not None, COLUMNS if settings.frames else 0)
    shutil.rmtree(work)


def open_network(settings: NetworkSettings, device: torch.device | str = "cpu") -> Extractor:
    """Build the network by its name: torchvision/…, open_clip/…, hub/…, fasterrcnn_resnet50_fpn_v2, or any of timm.

    With `settings.frames` the network takes films. Raises UserError for settings that the network does not accept.
    Raises UnreachableWeightsError where weights are neither on this machine nor can be fetched.
    """
    kinds: dict[str, Callable[..., Extractor]]
    kinds = {DETECTOR: FasterRCNN, TORCHVISION: TorchvisionNetwork, OPEN_CLIP: ClipNetwork, FROM_HUB: open_hub_tower}
    kind = next((kind for prefix, kind in kinds.items() if settings.network.startswith(prefix)), TimmNetwork)
    return wrap_for_films(kind(settings, device), settings)


def _load_or_train_detector(
    images: CaptionedImages,
    task: DetectionTask,
    load: Load,
    work: Path,
    detector: Mapping[str, Any],
    image_size: int,
    frames: int,
    batch: int,
    device: torch.device | str,
    on_epoch: Callable[[int, dict[str, float]], None],
) -> torch.nn.Module:
    """Train the detector, or load the detector of a killed extraction. Frame f of film i is image i · `frames` + f."""
    path = work / "detector"
    if path.exists():
        network = task.build_network(detector["width"])
        try:
            network.load_state_dict(safetensors.torch.load(read_checked(path)))
            return network
        except (safetensors.SafetensorError, RuntimeError, OSError, ValueError) as error:
            tqdm.write(
                f"warning: {path}: cannot be read ({summarise_error(error)}); the detector is trained again",
                file=sys.stderr,
            )
    training = []

    def resize(image: Any) -> Tensor:
        return torch.stack(
            [resize_square(frame, image_size) for frame in (image if isinstance(image, Iterable) else [image])]
        )

    with tempfile.TemporaryDirectory(prefix=".pixels-", dir=work) as scratch:
        shape = (len(images) * frames, 3, image_size, image_size)
        allocate(Path(scratch) / "pixels", math.prod(shape))  # a full disk fails here, and not while the file is used
        pixels = np.memmap(Path(scratch) / "pixels", np.uint8, "r+", shape=shape)
        with closing(_load_batches(load, resize, _split_rows(images.rows("train"), batch))) as loader:
            for rows, tensors in loader:
                for row, tensor in zip(rows, tensors, strict=True):
                    training.append(row * frames + np.arange(len(tensor)))
                    pixels[training[-1]] = tensor.numpy()
        rows = np.concatenate(training)
        network = train_detector(pixels, task, rows, **detector, device=device, on_epoch=on_epoch)
    write_checked(path, _serialise(network.state_dict()))
    return network


def _compute_features(
    images: CaptionedImages,
    feature_parts: FeatureParts,
    network: Extractor,
    load: Load,
    batches: Iterable[np.ndarray],
    mirrored: bool,
) -> None:
    """Write the features of the `batches` that `feature_parts` does not hold yet.

    Raises UserError for an image whose features are not finite in half precision.
    """
    missing = [part for part in batches if not feature_parts.holds(int(part[0]))]
    # the threads end with this block, also after an error
    with closing(_load_batches(load, network.prepare, missing)) as loader:
        for part, tensors in loader:
            features = network([tensor.flip(-1) for tensor in tensors] if mirrored else tensors)
            finite = feature_parts.write(int(part[0]), features)
            if not finite.all():
                name = images.file(int(part[~finite][0]))
                raise UserError(f"{name}: a feature is infinite or NaN in half precision; use another network")


def _write_store(
    images: CaptionedImages,
    views: Sequence[FeatureParts],
    network: Extractor,
    out: Path,
    pca_dim: int | None,
    standardise: bool,
    unreduced: int,
) -> None:
    """Write the store from all rows, with mirror images after the others.

    `pca_dim` reduces the regions, except their last `unreduced` columns; `standardise` standardises the vectors.
    """
    max_regions, size = network.regions_shape
    description, projection, scale = network.description, None, None
    if standardise:
        scale = Standardisation.fit(
            _to_float32(features["pooled"]) for features in _read_training_features(views[0], images)
        )
        saved = _save(out / "scale.safetensors", {"mean": scale.mean, "deviation": scale.deviation})
        description = {**description, "scale": saved}
    if pca_dim is not None:
        projection = Projection.fit(
            (
                _stack_regions(features, max_regions)[:, : size - unreduced]
                for features in _read_training_features(views[0], images)
            ),
            pca_dim,
        )
        saved = _save(out / "projection.safetensors", {"mean": projection.mean, "components": projection.components})
        description = {**description, "projection": {**saved, "explained": round(projection.explained, 6)}}
        size = pca_dim + unreduced
    fitted, shape, mirrored = FittedTransforms(projection, scale, unreduced), (max_regions, size), len(views) > 1
    with FeatureWriter(out, len(images), network.pooled_size, shape, network.has_boxes, mirrored) as store:
        store.manifest.update(description)
        for side, view in enumerate(views):
            for part in _split_rows(np.arange(len(images)), CHUNK):
                features = view.read(part)
                if projection is not None or scale is not None:
                    count = torch.from_numpy(features["region_count"])
                    pooled, regions = fitted(_to_float32(features["pooled"]), _to_float32(features["regions"]), count)
                    features |= {"pooled": pooled.numpy(), "regions": regions.numpy()}
                store.write(part + side * len(images), **features)


def _compute_textures(
    images: CaptionedImages, split: str, load: Load, prepare: Callable[[Any], Tensor], batch: int
) -> Tensor:
    """Return the texture statistics (N, SIZE) of images spread evenly over a split."""
    rows = images.rows(split)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), TEXTURE_IMAGES[split])).astype(int)]
    with closing(
        _load_batches(load, lambda image: compute_texture_statistics(prepare(image)), _split_rows(rows, batch))
    ) as loader:
        return (
            torch.stack([statistics for _, part in loader for statistics in part])
            if len(rows)
            else torch.zeros(0, SIZE)
        )


def _read_training_features(view: FeatureParts, images: CaptionedImages) -> Iterator[dict[str, np.ndarray]]:
    return (view.read(part) for part in _split_rows(images.rows("train"), CHUNK))


def _stack_regions(features: Mapping[str, np.ndarray], max_regions: int) -> Tensor:
    return _to_float32(features["regions"][np.arange(max_regions) < features["region_count"][:, None]])


def _load_batches(
    load: Load, prepare: Callable[[Any], Tensor], parts: Sequence[np.ndarray]
) -> Generator[tuple[np.ndarray, list[Tensor]], None, None]:
    """Yield batches of rows with their prepared images, which threads load while the consumer processes others."""
    with (
        ThreadPoolExecutor(count_cores()) as pool,
        tqdm(total=sum(map(len, parts)), desc="images", unit="", disable=None) as bar,
    ):
        pending: deque[list[Future[Tensor]]] = deque()
        try:
            for number in range(len(parts) + PREFETCH):
                if number < len(parts):
                    pending.append([pool.submit(load, int(row), prepare) for row in parts[number]])
                if number >= PREFETCH:
                    rows = parts[number - PREFETCH]
                    yield rows, [future.result() for future in pending.popleft()]
                    bar.update(len(rows))
        finally:
            pool.shutdown(cancel_futures=True)


def _split_rows(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _to_float32(half: np.ndarray) -> Tensor:
    """Convert a float16 array to a float32 tensor."""
    return torch.from_numpy(np.ascontiguousarray(half)).float()


def _save(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Write a safetensors file, and return its entry in the manifest."""
    content = _serialise(tensors)
    write_atomically(path, content)
    return {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}


def _serialise(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialise tensors as a safetensors file."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
