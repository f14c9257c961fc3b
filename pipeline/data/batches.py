"""Batches of images with one human caption each. A resumed epoch has the same batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from pipeline.data.feature_store import FeatureStore
from pipeline.data.image_groups import LookAlikeGroups
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.types import Batch

PREFETCH = 2  # batches that are read in advance
SHUFFLE, CAPTION, NULL_IMAGE, MIRROR = 0, 1, 2, 3  # random streams

Captions = Literal["one", "all"]


class Batches:
    """Training batches of the images `rows`, shuffled by (seed, epoch); no batch has an image twice.

    With `captions` "one", an epoch is one pass over the images, each with one of its captions at random. With "all",
    pass k has each image that has at least k captions. The caption, the masking of regions and the mirroring depend on
    (seed, epoch, image) and on the pass. An image is mirrored with probability 1/2 if the store has mirror images.
    """

    def __init__(
        self,
        prepared: PreparedData,
        store: FeatureStore,
        rows: np.ndarray,
        batch: int,
        seed: int,
        pinned: bool = False,
        part: tuple[int, int] = (0, 1),
        image_dropout: float = 0.0,
        captions: Captions = "one",
        groups: np.ndarray | None = None,
        look_alikes: LookAlikeGroups | None = None,
    ):
        """Prepare the batches. Images of a pass that do not fill a batch are dropped.

        With fewer images than `batch`, a batch has all of them. `pinned` is for a GPU: features stay in half precision,
        in pinned memory, until `Batch.to` is called. `part` (k, n): the k-th of n equal parts of each batch, k from 0.
        `image_dropout`: the probability that all regions of an image are masked, which trains a speaker's null image.
        `groups`: a number for each image of the data set; images of equal numbers follow each other. `look_alikes`:
        groups whose images follow each other, formed anew in each pass.

        Raises UserError where a batch cannot be divided into equal parts, the store has another number of images, or
        there are fewer than two images.
        """
        _check_same_images(prepared, store)
        if len(rows) < 2:
            raise UserError(f"{prepared.folder}: expected a split of two or more images, got {len(rows)}; prepare more")
        self.prepared, self.store, self.rows = prepared, store, np.asarray(rows)
        self.batch, self.seed, self.pinned, self.image_dropout = min(batch, len(rows)), seed, pinned, image_dropout
        self.part, parts = part
        self.groups, self.look_alikes = groups, look_alikes
        self.passes = list_passes(prepared, self.rows, captions)
        if self.batch % parts:
            raise UserError(
                f"a batch of {self.batch} images does not divide into {parts} equal parts, one for each process; "
                "choose another number of processes, or another optimisation.batch in params.yaml"
            )
        self.part_size = self.batch // parts

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return sum(len(pass_rows) // self.batch for pass_rows in self.passes)

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch]:
        """Yield the batches of an epoch from number `start` on; `step` continues across epochs."""
        shuffle_rng, mask_rng, mirror_rng = (
            _make_rng(self.seed, epoch, stream) for stream in (SHUFFLE, NULL_IMAGE, MIRROR)
        )
        captions, batches = self._draw_captions(epoch), []
        for pass_rows, caption in zip(self.passes, captions, strict=True):
            order = pass_rows[shuffle_rng.permutation(len(pass_rows))]
            masked = mask_rng.random(len(self.prepared)) < self.image_dropout
            if self.groups is not None:
                order = order[_order_by_group(self.groups[order])]
            if self.look_alikes is not None:
                order = self.look_alikes.arrange(order)
            batch_rows = (order[k * self.batch : (k + 1) * self.batch] for k in range(len(pass_rows) // self.batch))
            store_rows = np.arange(len(self.prepared))
            if self.store.mirrored:
                store_rows += len(store_rows) * (mirror_rng.random(len(store_rows)) < 0.5)
            batches += [(rows, store_rows[rows], caption[rows], masked[rows]) for rows in batch_rows]

        def read(number: int) -> Batch:
            first, step = self.part * self.part_size, epoch * len(self) + number
            rows, store_rows, caption, masked = (values[first : first + self.part_size] for values in batches[number])
            batch = self.read(rows, store_rows, caption, masked, epoch, step)
            if self.part_size == self.batch:
                return batch
            rows_per_image = len(batch) // len(rows)  # a dialog batch has a row per round
            return replace(batch, first=first * rows_per_image, whole_size=self.batch * rows_per_image)

        with ThreadPoolExecutor(1, "batches") as executor:
            futures: deque[Future[Batch]] = deque()
            try:
                for number in range(start, len(self)):
                    futures.append(executor.submit(read, number))
                    if len(futures) > PREFETCH:
                        yield futures.popleft().result()
                while futures:
                    yield futures.popleft().result()
            finally:  # the consumer stopped, or reading failed
                executor.shutdown(wait=True, cancel_futures=True)

    def read(
        self, rows: np.ndarray, store_rows: np.ndarray, captions: np.ndarray, masked: np.ndarray, epoch: int, step: int
    ) -> Batch:
        """Read images `rows` (B,) with the captions numbered `captions` (B,).

        `store_rows` (B,) are their rows of the store. All regions are masked where `masked` (B,) is True.
        """
        batch = read_batch(self.prepared, self.store, rows, store_rows, captions, epoch, step, self.pinned)
        batch.region_mask[torch.from_numpy(masked)] = False
        return batch

    def _draw_captions(self, epoch: int) -> np.ndarray:
        """Return (S, M): the caption of each image in each of S passes; arbitrary for images that a pass lacks."""
        rng, first = _make_rng(self.seed, epoch, CAPTION), self.prepared.first
        count = np.diff(first)
        if len(self.passes) == 1:
            return (first[:-1] + (rng.random(len(count)) * count).astype(np.int64))[None]
        sort_keys = rng.random((len(count), len(self.passes)))
        sort_keys[np.arange(len(self.passes)) >= count[:, None]] = np.inf  # captions that do not exist sort last
        return (first[:-1, None] + sort_keys.argsort(1)).T


def _order_by_group(groups: np.ndarray) -> np.ndarray:
    """Return the permutation that puts equal groups side by side, in the order of their first members."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(first[inverse], kind="stable")


def list_passes(prepared: PreparedData, rows: np.ndarray, captions: Captions) -> list[np.ndarray]:
    """Return the images of `rows` in each pass of an epoch.

    The first pass has all images. With `captions` "all", pass k has the images with at least k captions.
    """
    if captions == "one":
        return [rows]
    count = np.diff(prepared.first)[rows]
    return [rows[count > number] for number in range(count.max())]


def iterate_sequentially(prepared: PreparedData, store: FeatureStore, rows: np.ndarray, batch: int) -> Iterator[Batch]:
    """Yield all images of `rows` in order, each with its first caption; the last batch may be smaller."""
    _check_same_images(prepared, store)
    for number, start in enumerate(range(0, len(rows), batch)):
        images = np.asarray(rows[start : start + batch])
        yield read_batch(prepared, store, images, images, prepared.first[images], 0, number, pinned=False)


def read_batch(
    prepared: PreparedData,
    store: FeatureStore,
    rows: np.ndarray,
    store_rows: np.ndarray,
    captions: np.ndarray,
    epoch: int,
    step: int,
    pinned: bool,
) -> Batch:
    """Read the batch of images `rows` (B,); `store_rows` (B,) are their rows of the store, plain or mirrored."""
    pooled = torch.empty(len(rows), store.pooled_size, dtype=torch.float16, pin_memory=pinned)
    regions = torch.empty(len(rows), *store.regions_shape, dtype=torch.float16, pin_memory=pinned)
    store.read_into(store_rows, pooled.numpy(), regions.numpy())
    if not pinned:
        pooled, regions = pooled.float(), regions.float()
    words = torch.from_numpy(prepared.tokens[captions].astype(np.int64))
    mask = torch.from_numpy(store.mask(store_rows))
    return Batch(torch.from_numpy(rows.astype(np.int64)), pooled, regions, mask, words, epoch, step)


def _make_rng(seed: int, epoch: int, stream: int) -> np.random.Generator:
    # a list with a number of 2**63 or more, such as a sum of two seeds, would be rounded to float64
    key = np.array([seed % 2**64, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, stream]))


def _check_same_images(prepared: PreparedData, store: FeatureStore) -> None:
    if len(store) != len(prepared):
        problem = f"features of {len(store)} images, but {prepared.folder} has {len(prepared)}"
        raise UserError(f"{store.path}: {problem}; run the features stage again")
