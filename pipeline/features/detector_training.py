"""Training of a small detector on the user's images with one-cycle AdamW, for any `DetectionTask`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.runtime.adam import Adam

WEIGHT_DECAY = 0.5  # for convolutions and linear layers, not for biases and norms
SHIFT = 4  # largest shift of a training image, in pixels


Network = TypeVar("Network", bound=nn.Module)


class DetectionTask(Protocol[Network]):
    """A training task on images: its network and its loss."""

    def build_network(self, width: int) -> Network:
        """Build an untrained detector."""
        ...

    def initialise(self, detector: Network, rows: np.ndarray) -> None:
        """Initialise the detector from known properties of the training images `rows`."""
        ...

    def loss(self, detector: Network, pixels: Tensor, images: np.ndarray, mirrored: np.ndarray) -> Tensor:
        """Return the loss summed over B images: their pixels (B, 3, S, S) and rows `images` (B,).

        `mirrored` (B,) bool is True for images whose pixels are mirrored.
        """
        ...


@contextmanager
def _use_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_use_one_thread()
def train_detector(
    pixels: np.ndarray,
    task: DetectionTask[Network],
    rows: np.ndarray,
    *,
    epochs: int,
    width: int,
    learning_rate: float,
    batch: int,
    horizontal_flip: bool,
    seed: int,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, dict[str, float]], None] = lambda epoch, report: None,
) -> Network:
    """Train a detector on `task` with the images `rows` of `pixels` (M, 3, S, S) uint8.

    The optimiser is AdamW with a one-cycle learning rate; the loss is averaged over images. Each epoch skips the
    images that do not fill a batch. With `horizontal_flip` each image is mirrored with probability ½. `on_epoch`
    receives each epoch's number, from 0, and {"loss": its mean loss}. On the CPU, equal arguments give equal
    weights, bit for bit. Training uses one thread: batches are too small for more, and two threads on a busy machine
    took ten times as long. Raises UserError for fewer than two images, since batch normalisation needs two.
    """
    if len(rows) < 2:
        raise UserError(f"detector: expected two training images or more, found {len(rows)}; add training images")
    batch = min(batch, len(rows))
    steps = len(rows) // batch
    with torch.random.fork_rng(devices=[]):  # initialisation draws from PyTorch's global stream, which is restored
        torch.manual_seed(seed)
        detector = task.build_network(width)
    task.initialise(detector, rows)
    detector.to(device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    if epochs == 0:
        return detector.eval()
    optimiser = Adam(detector, WEIGHT_DECAY)
    for epoch in tqdm(range(epochs), desc="detector", unit="epoch", disable=None):
        rng = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        order, total = rng.permutation(rows), torch.zeros((), device=device)
        for step in range(steps):
            images = np.sort(order[step * batch : (step + 1) * batch])
            inputs = _shift(torch.from_numpy(pixels[images]).to(device).float(), *rng.integers(-SHIFT, SHIFT + 1, 2))
            mirrored = rng.random(batch) < 0.5 if horizontal_flip else np.zeros(batch, bool)
            if horizontal_flip:
                inputs = torch.where(torch.from_numpy(mirrored).to(device).view(-1, 1, 1, 1), inputs.flip(-1), inputs)
            loss = task.loss(detector, inputs.contiguous(memory_format=torch.channels_last), images, mirrored) / batch
            loss.backward()
            optimiser.step(compute_one_cycle_rate(epoch * steps + step, epochs * steps, learning_rate))
            total += loss.detach()
        on_epoch(epoch, {"loss": float(total) / steps})
    return detector.eval()


def compute_one_cycle_rate(step: int, steps: int, highest: float) -> float:
    """Return the learning rate of `step` (from 0) of torch's OneCycleLR, which rises in the first fifth of `steps`.

    The first rate is `highest` / 10 where `steps` exceeds 5. The last rate is always `highest` / 100,000.
    """
    lowest, peak_step = highest / 10, float(0.2 * steps) - 1
    if step <= peak_step and peak_step:
        return _interpolate_by_cosine(lowest, highest, step / peak_step)
    return _interpolate_by_cosine(highest, lowest / 1e4, (step - peak_step) / (steps - 1 - peak_step))


def _interpolate_by_cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _shift(pixels: Tensor, down: int, right: int) -> Tensor:
    """Shift images (B, 3, S, S) by `down` and `right` pixels, at most SHIFT; border pixels fill the gap."""
    side = pixels.shape[-1]
    padded = F.pad(pixels, (SHIFT,) * 4, mode="replicate")
    return padded[..., SHIFT - down : SHIFT - down + side, SHIFT - right : SHIFT - right + side]
