"""A small ResNet trained to predict the captions' words, for data without pretrained weights.

Fang et al., From captions to visual concepts and back (CVPR 2015), predict words as labels of images; here the target
of a word is the share of an image's captions that contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from pipeline.features.extractor import GridNetwork, NetworkSettings
from pipeline.vocabulary import EOS

if TYPE_CHECKING:
    from PIL import Image

WEIGHT_DECAY = 0.5  # of convolutions and of the linear layer, not of biases and norms
SHIFT = 4  # pixels that a training image is moved by at most


class Captions(Protocol):
    """The captions of images, as tokens."""

    def references(self, images: np.ndarray) -> np.ndarray:
        """(n, K, T): up to K captions of T tokens of n images, padded with 0."""
        ...


class WordDetector(nn.Module):
    """Images (B, 3, S, S), 0 … 255 → a map (B, 4·width, S/16, S/16) → one vector → logits of V words."""

    def __init__(self, words: int, width: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 6, 4, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.Sequential(
            _Residual(width, width, 1), _Residual(width, 2 * width, 2), _Residual(2 * width, 4 * width, 2)
        )
        self.standardised = nn.BatchNorm1d(8 * width, affine=False)
        self.words = nn.Linear(8 * width, words)

    def regions(self, pixels: Tensor) -> Tensor:
        """(B, 4·width, H, W): the last feature map, not negative."""
        return self.stages(self.stem(pixels / 127.5 - 1))

    def pooled(self, regions: Tensor) -> Tensor:
        """(B, 8·width): mean and maximum over the cells, each standardised over the training images."""
        return self.standardised(torch.cat([regions.mean((2, 3)), regions.amax((2, 3))], 1))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.words(self.pooled(self.regions(pixels)))


class _Residual(nn.Module):
    """Two convolutions beside a shortcut (He et al. 2016, basic block)."""

    def __init__(self, size: int, out: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(_convolution(size, out, stride), nn.ReLU(), _convolution(out, out, 1))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or size != out:
            self.shortcut = nn.Sequential(
                nn.AvgPool2d(stride), nn.Conv2d(size, out, 1, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def _convolution(size: int, out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(size, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out))


def word_shares(references: np.ndarray, words: int) -> Tensor:
    """(n, words) float: the share of each image's captions (n, K, T) that contain each of the words 1 … `words`."""
    tokens = torch.from_numpy(references.astype(np.int64))
    captions = (tokens != EOS).any(-1).sum(-1, keepdim=True)
    held = torch.zeros(*tokens.shape[:2], int(max(words, references.max(initial=0))) + 1)
    return held.scatter_(2, tokens, 1.0)[..., 1 : words + 1].sum(1) / captions


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def train_detector(
    pixels: np.ndarray,
    captions: Captions,
    rows: np.ndarray,
    words: int,
    *,
    epochs: int,
    width: int,
    learning_rate: float,
    batch: int,
    mirrored: bool,
    seed: int,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, dict[str, float]], None] = lambda epoch, report: None,
) -> WordDetector:
    """Learn words 1 … `words` from the images `rows` of `pixels` (M, 3, S, S) uint8, by binary cross-entropy.

    AdamW, one-cycle learning rate; the loss is summed over words, averaged over images. `mirrored`: each image is
    shown mirrored every other time, at random, which would make "left of" false. `on_epoch` gets each epoch's number
    and mean loss. The seed fixes the weights bit for bit on the CPU, where one thread does the work: batches
    are too small for more, and two threads on a busy machine took ten times as long.
    """
    batch = min(batch, len(rows))
    steps = len(rows) // batch
    with torch.random.fork_rng(devices=[]):  # initialisation draws from PyTorch's global stream, which is restored
        torch.manual_seed(seed)
        detector = WordDetector(words, width)
    _start_at_frequencies(detector, captions, rows, words)
    detector.to(device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    if epochs == 0:
        return detector.eval()
    decaying = [p for p in detector.parameters() if p.dim() > 1]
    others = [p for p in detector.parameters() if p.dim() == 1]
    groups = [{"params": decaying, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        adam, learning_rate, total_steps=epochs * steps, pct_start=0.2, div_factor=10, cycle_momentum=False
    )
    for epoch in tqdm(range(epochs), desc="word detector", unit="epoch", disable=None):
        rng = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        order, total = rng.permutation(rows), torch.zeros((), device=device)
        for step in range(steps):
            some = np.sort(order[step * batch : (step + 1) * batch])
            targets = word_shares(captions.references(some), words).to(device)
            shown = _shifted(torch.from_numpy(pixels[some]).to(device).float(), *rng.integers(-SHIFT, SHIFT + 1, 2))
            if mirrored:
                turned = torch.from_numpy(rng.random(batch) < 0.5).to(device)
                shown = torch.where(turned.view(-1, 1, 1, 1), shown.flip(-1), shown)
            logits = detector(shown.contiguous(memory_format=torch.channels_last))
            loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / batch
            adam.zero_grad()
            loss.backward()
            adam.step()
            schedule.step()
            total += loss.detach()
        on_epoch(epoch, {"loss": float(total) / steps})
    return detector.eval()


def _shifted(pixels: Tensor, down: int, right: int) -> Tensor:
    """Images (B, 3, S, S) shifted by `down` and `right` pixels, their borders repeated."""
    side = pixels.shape[-1]
    padded = F.pad(pixels, (SHIFT,) * 4, mode="replicate")
    return padded[..., SHIFT - down : SHIFT - down + side, SHIFT - right : SHIFT - right + side]


def _start_at_frequencies(detector: WordDetector, captions: Captions, rows: np.ndarray, words: int) -> None:
    """Start the biases at each word's frequency, so that no epoch is spent on learning it."""
    share = word_shares(captions.references(rows[:2000]), words).mean(0).clamp(1e-4, 1 - 1e-4)
    with torch.no_grad():
        detector.words.bias.copy_(torch.logit(share))


class WordDetectorNetwork(GridNetwork):
    """A trained detector as an Extractor: the vector is [mean, maximum] over the cells of its last map.

    The image is squashed to the square, (3, S, S) uint8.
    """

    def __init__(self, detector: WordDetector, settings: NetworkSettings, device: torch.device | str = "cpu"):
        size = settings.image_size
        preprocessing = {"input_size": [3, size, size], "interpolation": "bicubic"}
        description = {"network": settings.network, "preprocessing": preprocessing}
        super().__init__(detector, partial(squashed, size=size), settings, description, device)

    def _see(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        regions = self.model.regions(pixels.float())
        return self.model.pooled(regions), regions


def squashed(image: Image.Image, size: int) -> Tensor:
    """(3, size, size) uint8 of an RGB image."""
    from PIL import Image as Pillow

    return torch.from_numpy(np.array(image.resize((size, size), Pillow.Resampling.BICUBIC)).transpose(2, 0, 1).copy())
