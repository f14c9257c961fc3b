"""Photo embeddings by any encoder, from the cache where possible; an interrupted run goes on from there."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from pipeline.errors import UserError
from saywhich.photos import Photo, load_in_threads
from saywhich.vector_cache import EmbeddedPhotos, PhotoGallery, gallery_vectors

AT_ONCE = 32  # photos in one batch
TEXTS_AT_ONCE = 256

PreparedPhoto = Mapping[str, Tensor]  # a network's inputs of one photo, by name


class PhotoEncoder(Protocol):
    """A network that embeds photos."""

    name: str
    digest: str  # identifies weights and preprocessing, for the cache
    size: int  # H

    def prepare(self, photo: Photo) -> PreparedPhoto:
        """Return a photo as the network's input; called in threads. Raises UserError where it cannot be read."""
        ...

    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        """Return embeddings (n, H) float32 of n prepared photos."""
        ...


class CaptionJudge(PhotoEncoder, Protocol):
    """A network that embeds photos and captions; inner products of embeddings of length 1 are its scores."""

    gives_clip_score: bool  # whether CLIPScore is defined for it

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings (N, H) float32 of length 1 of N captions."""
        ...

    def cut(self, texts: Sequence[str]) -> list[str]:
        """Return the captions that are longer than the network reads."""
        ...

    def unknown(self, texts: Sequence[str]) -> list[str]:
        """Return the captions of which more than half of the words are not in the network's vocabulary."""
        ...


def encode_gallery(encoder: PhotoEncoder, files: Sequence[Path]) -> PhotoGallery:
    """Return the embeddings of the readable `files`; report each other photo in a line on stderr."""

    def look(paths: Sequence[str]) -> Iterator[EmbeddedPhotos]:
        for part in load_in_threads(map(Path, paths), encoder.prepare, AT_ONCE):
            there = [(path, prepared) for path, prepared in part if not isinstance(prepared, UserError)]
            for _, error in part:
                if isinstance(error, UserError):
                    tqdm.write(str(error), file=sys.stderr)
            if there:
                inputs = [prepared for _, prepared in there]
                yield [str(path) for path, _ in there], [*map(prepared_digest, inputs)], encoder.encode_photos(inputs)

    return gallery_vectors(files, encoder.digest, encoder.size, look)


def encode_captions(judge: CaptionJudge, texts: Sequence[str]) -> Tensor:
    """Return embeddings (N, H) of N captions, each distinct one encoded once, so that equal ones tie to the bit."""
    distinct = sorted(set(texts))
    place = {text: row for row, text in enumerate(distinct)}
    parts = []
    with tqdm(total=len(distinct), desc=f"captions by {judge.name}", unit="", disable=None) as bar:
        for first in range(0, len(distinct), TEXTS_AT_ONCE):
            parts.append(judge.encode_texts(distinct[first : first + TEXTS_AT_ONCE]).cpu())
            bar.update(len(parts[-1]))
    return torch.cat(parts)[[place[text] for text in texts]]


def prepared_digest(prepared: PreparedPhoto) -> str:
    """Return the SHA-256 of a network's inputs; the network cannot distinguish photos with equal digests."""
    found = hashlib.sha256()
    for name in sorted(prepared):
        found.update(prepared[name].contiguous().numpy().tobytes())
    return found.hexdigest()
