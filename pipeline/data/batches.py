"""Batches of images with a human caption each, the same wherever an epoch is resumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.types import Batch

AHEAD = 2  # batches that are read in advance
ORDER, CAPTION, UNSEEN = 0, 1, 2  # random streams


class Batches:
    """Training batches of the images `rows`, shuffled by (seed, epoch).

    An image's caption, and whether its regions are masked, depend on (seed, epoch, image) alone.
    """

    def __init__(
        self,
        prepared: Prepared,
        store: FeatureStore,
        rows: np.ndarray,
        batch: int,
        seed: int,
        pinned: bool = False,
        part: tuple[int, int] = (0, 1),
        image_dropout: float = 0.0,
    ):
        """An epoch leaves out the images that do not fill a batch; fewer images than a batch make one batch.

        `pinned` is for a GPU: features stay in half precision, in pinned memory, until `Batch.to` is called. `part`
        (k, n): of each batch the k-th of n equal parts, k from 0. `image_dropout`: the share of images of which all
        regions are masked, so that a speaker sees its null image.

        Raises UserError where a batch cannot be divided into equal parts, the store is of other images, or there are
        fewer than two images.
        """
        _check_same_images(prepared, store)
        if len(rows) < 2:
            raise UserError(f"{prepared.folder}: {len(rows)} images cannot be told apart; a split needs two at least")
        self.prepared, self.store, self.rows = prepared, store, np.asarray(rows)
        self.batch, self.seed, self.pinned, self.image_dropout = min(batch, len(rows)), seed, pinned, image_dropout
        self.part, parts = part
        if self.batch % parts:
            raise UserError(
                f"a batch of {self.batch} images does not divide into {parts} equal parts, one for each process; "
                "choose another number of processes, or another optimisation.batch in params.yaml"
            )
        self.each = self.batch // parts

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self.rows) // self.batch

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on; `step` counts on over epochs."""
        order = self.rows[_generator(self.seed, epoch, ORDER).permutation(len(self.rows))]
        read_rows = self.reader(epoch)

        def read(number: int) -> Batch:
            first, step = self.part * self.each, epoch * len(self) + number
            rows = order[number * self.batch : (number + 1) * self.batch][first : first + self.each]
            batch = read_rows(rows, step)
            if self.each == self.batch:
                return batch
            each = len(batch) // len(rows)  # in dialogs an image has several rows
            return replace(batch, first=first * each, of=self.batch * each)

        with ThreadPoolExecutor(1, "batches") as reader:
            waiting: deque[Future[Batch]] = deque()
            try:
                for number in range(start, len(self)):
                    waiting.append(reader.submit(read, number))
                    if len(waiting) > AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:  # the consumer stopped, or reading failed
                reader.shutdown(wait=True, cancel_futures=True)

    def reader(self, epoch: int) -> Callable[[np.ndarray, int], Batch]:
        """What reads the images `rows` (b,) of an epoch for a step."""
        draws = _generator(self.seed, epoch, CAPTION).random(len(self.prepared))
        first = self.prepared.first
        captions = first[:-1] + (draws * np.diff(first)).astype(np.int64)  # (M,): one of each image's captions
        unseen = _generator(self.seed, epoch, UNSEEN).random(len(self.prepared)) < self.image_dropout

        def read(rows: np.ndarray, step: int) -> Batch:
            batch = read_batch(self.prepared, self.store, rows, captions[rows], epoch, step, self.pinned)
            batch.region_mask[torch.from_numpy(unseen[rows])] = False
            return batch

        return read


def everything(prepared: Prepared, store: FeatureStore, rows: np.ndarray, batch: int) -> Iterator[Batch]:
    """All images of `rows` in order, each with its first caption, the last batch as small as need be."""
    _check_same_images(prepared, store)
    for number, start in enumerate(range(0, len(rows), batch)):
        some = np.asarray(rows[start : start + batch])
        yield read_batch(prepared, store, some, prepared.first[some], 0, number, pinned=False)


def read_batch(
    prepared: Prepared, store: FeatureStore, rows: np.ndarray, captions: np.ndarray, epoch: int, step: int, pinned: bool
) -> Batch:
    """The images `rows` with the captions of these numbers."""
    pooled = torch.empty(len(rows), store.pooled_size, dtype=torch.float16, pin_memory=pinned)
    regions = torch.empty(len(rows), *store.regions_shape, dtype=torch.float16, pin_memory=pinned)
    store.read_into(rows, pooled.numpy(), regions.numpy())
    if not pinned:
        pooled, regions = pooled.float(), regions.float()
    words = torch.from_numpy(prepared.tokens[captions].astype(np.int64))
    mask = torch.from_numpy(store.mask(rows))
    return Batch(torch.from_numpy(rows.astype(np.int64)), pooled, regions, mask, words, epoch, step)


def _generator(seed: int, epoch: int, what: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, what]))


def _check_same_images(prepared: Prepared, store: FeatureStore) -> None:
    if len(store) != len(prepared):
        problem = f"features of {len(store)} images, but {prepared.folder} has {len(prepared)}"
        raise UserError(f"{store.path}: {problem}; run the features stage again")
