"""Photos encoded by a listener: the part of a model's features that ranking and search need."""

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
    """M photos encoded by a listener; subclasses add inputs of networks, each a tensor or a tuple of M rows."""

    # (M, H): image embeddings of norm 1; zeros unless the listener takes photos; H = 0 without a listener
    vectors: Tensor
    contents: tuple[str, ...]  # digests of the prepared photos; equal digests mean equal inputs
    boxes: Tensor | None = None  # (M, R, 4): corners of detected regions, as shares of width and height

    def __len__(self) -> int:
        return len(self.contents)

    @property
    def unlike(self) -> tuple[bool, ...]:
        """Return whether each of the M photos is known to be unlike the training images."""
        return tuple(content.endswith(UNLIKE) for content in self.contents)

    def find_copies(self, contents: Sequence[str]) -> Tensor:
        """Return (N, M) bool: True at (n, m) where photo m has the digest `contents[n]`."""
        digests = [content.removesuffix(UNLIKE) for content in self.contents]
        same = [[other == content.removesuffix(UNLIKE) for other in digests] for content in contents]
        return torch.tensor(same, dtype=torch.bool).view(len(contents), len(self))

    def select(self, rows: Sequence[int]) -> Self:
        """Return the photos `rows`, in that order."""

        def select_rows(value: Any) -> Any:
            if value is None:
                return None
            return tuple(value[row] for row in rows) if isinstance(value, tuple) else value[list(rows)]

        return type(self)(**{field.name: select_rows(getattr(self, field.name)) for field in fields(self)})

    def split(self, size: int) -> Iterator[Self]:
        """Yield the photos in parts of at most `size` photos."""
        for first in range(0, len(self), size):
            yield self.select(range(first, min(first + size, len(self))))


def join_photos(parts: Sequence[Photos]) -> Photos:
    """Concatenate one or more parts of a set of photos."""

    def concatenate(values: list[Any]) -> Any:
        if values[0] is None:
            return None
        return sum(values, ()) if isinstance(values[0], tuple) else torch.cat(values)

    names = [field.name for field in fields(parts[0])]
    return type(parts[0])(**{name: concatenate([getattr(part, name) for part in parts]) for name in names})
