"""Batched streaming of photo files through a model; unreadable photos are reported and skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from saywhich.captioning_model import CaptioningModel
from saywhich.judging.photo_vectors import encode_gallery
from saywhich.model import Model, PhotoFeatures
from saywhich.model_with_listener import ModelWithListener
from saywhich.photos import load_readable
from saywhich.vector_cache import EmbeddedPhotos, PhotoGallery, embed_with_cache


def stream_features(
    model: CaptioningModel[Any, PhotoFeatures], files: Sequence[Path]
) -> Iterator[tuple[list[Path], PhotoFeatures]]:
    """Yield the readable photos and their features, in batches; report each other photo in a line on stderr."""
    for readable, prepared in load_readable(files, model.prepare, model.photos_at_once):
        yield readable, model.encode_prepared(prepared)


def stream_embeddings(model: Model, paths: Sequence[str]) -> Iterator[EmbeddedPhotos]:
    """Yield the listener's embeddings of readable photos, as `saywhich.vector_cache.embed_with_cache` needs them.

    Raises UserError as `Model.require_listener` does.
    """
    model.require_listener()
    for readable, features in stream_features(model, [Path(path) for path in paths]):
        yield [str(path) for path in readable], features.contents, features.vectors.numpy()


def embed_gallery(model: Model | ModelWithListener, files: Sequence[Path]) -> PhotoGallery:
    """Return the listener's embeddings of readable photos, from the cache where possible."""
    if isinstance(model, ModelWithListener):
        return encode_gallery(model.listener, files)
    size = model.listener.image.out_features
    return embed_with_cache(files, model.files.digest, size, lambda paths: stream_embeddings(model, paths))
