"""Batched streaming of photo files through a model; unreadable photos are reported and skipped."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor
from tqdm import tqdm

from pipeline.errors import UserError
from saywhich.model import AT_ONCE
from saywhich.photos import load_in_threads
from saywhich.vector_cache import EmbeddedPhotos, PhotoGallery, gallery_vectors

if TYPE_CHECKING:
    from saywhich.model import Model, PhotoFeatures


class PhotoStream:
    """A stream of one command's photos; `broken` counts those that could not be read."""

    def __init__(self, model: Model) -> None:
        self.model, self.broken = model, 0

    def features(self, files: Sequence[Path]) -> Iterator[tuple[list[Path], PhotoFeatures]]:
        """Yield the readable photos and their features, in batches; report each other photo in a line on stderr."""
        for part in load_in_threads(files, self.model.prepare, AT_ONCE):
            readable = [(file, tensor) for file, tensor in part if isinstance(tensor, Tensor)]
            for _, error in part:
                if isinstance(error, UserError):
                    self.broken += 1
                    tqdm.write(str(error), file=sys.stderr)
            if readable:
                yield [file for file, _ in readable], self.model.features_of([tensor for _, tensor in readable])

    def embed(self, paths: Sequence[str]) -> Iterator[EmbeddedPhotos]:
        """Yield the listener's embeddings of readable photos, as `saywhich.vector_cache.gallery_vectors` needs them."""
        self.model.require_listener()
        for readable, features in self.features([Path(path) for path in paths]):
            yield [str(path) for path in readable], features.contents, features.vectors.numpy()

    def gallery(self, files: Sequence[Path]) -> PhotoGallery:
        """Return the listener's embeddings of readable photos, from the cache where possible."""
        return gallery_vectors(files, self.model.place.digest, self.model.listener.image.out_features, self.embed)
