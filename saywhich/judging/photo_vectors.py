"""Embeddings of photos and captions, from the cache where possible, so that a restarted run continues."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from saywhich.judging.clip_metrics import PROMPT, ClipMetric
from saywhich.photos import Photo, load_readable
from saywhich.vector_cache import EmbeddedPhotos, PhotoGallery, VectorCache, embed_with_cache

PHOTO_BATCH = 32  # photos in one batch
TEXT_BATCH = 256
LOOKUP_BATCH = 64 * TEXT_BATCH  # captions looked up in the cache together

PreparedPhoto = Mapping[str, Tensor]  # a network's inputs of one photo, by name


class PhotoEncoder(Protocol):
    """A network that embeds photos."""

    name: str
    digest: str  # identifies weights, preprocessing and tokenizer, for the cache
    size: int  # H

    def prepare(self, photo: Photo) -> PreparedPhoto:
        """Return a photo as the network's input; called in threads. Raises UserError where it cannot be read."""
        ...

    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        """Return embeddings (B, H) float32 of B prepared photos."""
        ...


class CaptionJudge(PhotoEncoder, Protocol):
    """A network that embeds photos and captions as vectors of length 1; their inner products are its scores."""

    metric: ClipMetric | None  # the published score by this model
    temperature: float  # cosines divided by it are the logits of the model's training

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings (N, H) float32 of length 1 of N captions."""
        ...

    def find_truncated(self, texts: Sequence[str]) -> list[str]:
        """Return the captions that are longer than the network's input, which truncates them."""
        ...

    def find_unknown(self, texts: Sequence[str]) -> list[str]:
        """Return the captions with mostly unknown words, or in a script that is foreign to the network's tokenizer.

        saywhich/judging/foreign_captions.py defines foreign scripts.
        """
        ...


def encode_gallery(encoder: PhotoEncoder, files: Sequence[Path]) -> PhotoGallery:
    """Return the embeddings of the readable `files`; report each other photo in a line on stderr."""

    def embed(paths: Sequence[str]) -> Iterator[EmbeddedPhotos]:
        for readable, prepared in load_readable(map(Path, paths), encoder.prepare, PHOTO_BATCH):
            yield (
                [str(path) for path in readable],
                [*map(compute_prepared_digest, prepared)],
                encoder.encode_photos(prepared),
            )

    return embed_with_cache(files, encoder.digest, encoder.size, embed)


def encode_captions(judge: CaptionJudge, texts: Sequence[str]) -> Tensor:
    """Return embeddings (N, H) of N captions. Equal captions are encoded once: their scores are bitwise equal."""
    distinct = sorted(set(texts))
    vectors = torch.empty(len(distinct), judge.size)
    cache = VectorCache(judge.digest, judge.size)
    with tqdm(total=len(distinct), desc=f"captions by {judge.name}", unit="", disable=None) as bar:
        for first in range(0, len(distinct), LOOKUP_BATCH):
            part = distinct[first : first + LOOKUP_BATCH]
            cached = cache.read_captions(part)
            bar.update(len(cached))
            new = [row for row, text in enumerate(part, first) if text not in cached]
            for row, text in enumerate(part, first):
                if text in cached:
                    vectors[row] = torch.from_numpy(cached[text].copy())
            for start in range(0, len(new), TEXT_BATCH):
                rows = new[start : start + TEXT_BATCH]
                vectors[rows] = judge.encode_texts([distinct[row] for row in rows]).float().cpu()
                cache.add_captions([distinct[row] for row in rows], vectors[rows].numpy())
                bar.update(len(rows))
            if new:
                cache.confirm_captions(part)
    cache.close()
    row_by_text = {text: row for row, text in enumerate(distinct)}
    return vectors[[row_by_text[text] for text in texts]]


def find_truncated_captions(judge: CaptionJudge, texts: Sequence[str]) -> list[str]:
    """Return the captions that the judge would truncate; for a published score, it encodes them after PROMPT."""
    prompt = PROMPT if judge.metric else ""
    return [text.removeprefix(prompt) for text in judge.find_truncated([prompt + text for text in texts])]


def compute_prepared_digest(prepared: PreparedPhoto) -> str:
    """Return the SHA-256 of a network's inputs; the network cannot distinguish photos with equal digests."""
    digest = hashlib.sha256()
    for name in sorted(prepared):
        digest.update(prepared[name].contiguous().numpy().tobytes())
    return digest.hexdigest()
