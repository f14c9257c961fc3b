"""Photos as a listener encodes them: the part of a model's features that ranking and search need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from saywhich.photos import UNLIKE

Photos = TypeVar("Photos", bound="EncodedPhotos")


@dataclass(frozen=True)
class EncodedPhotos:
    """M photos encoded by a listener; subclasses add the speaker's inputs, each a tensor or a tuple of M rows."""

    vectors: Tensor  # (M, H) of length 1: the image embeddings; zeros if the listener encodes other features
    contents: tuple[str, ...]  # digests of the prepared photos; equal digests mean equal inputs
    boxes: Tensor | None = None  # (M, R, 4) as shares of width and height, for detected regions

    def __len__(self) -> int:
        return len(self.contents)

    @property
    def unlike(self) -> tuple[bool, ...]:
        """Return for each photo whether it is known to be unlike the training images."""
        return tuple(content.endswith(UNLIKE) for content in self.contents)

    def copies(self, contents: Sequence[str]) -> Tensor:
        """Return (N, M) bool: which of these M photos have the digest of each of N prepared photos."""
        digests = [content.removesuffix(UNLIKE) for content in self.contents]
        same = [[other == content.removesuffix(UNLIKE) for other in digests] for content in contents]
        return torch.tensor(same, dtype=torch.bool).view(len(contents), len(self))

    def select(self, rows: Sequence[int]) -> Self:
        """Return the photos `rows`, in that order."""

        def chosen(value: Any) -> Any:
            if value is None:
                return None
            return tuple(value[row] for row in rows) if isinstance(value, tuple) else value[list(rows)]

        return type(self)(**{field.name: chosen(getattr(self, field.name)) for field in fields(self)})

    def split(self, size: int) -> Iterator[Self]:
        """Split the photos into parts of at most `size`."""
        for first in range(0, len(self), size):
            yield self.select(range(first, min(first + size, len(self))))


def join_photos(parts: Sequence[Photos]) -> Photos:
    """Join one or more parts of a set of photos."""

    def joined(values: list[Any]) -> Any:
        if values[0] is None:
            return None
        return sum(values, ()) if isinstance(values[0], tuple) else torch.cat(values)

    names = [field.name for field in fields(parts[0])]
    return type(parts[0])(**{name: joined([getattr(part, name) for part in parts]) for name in names})
