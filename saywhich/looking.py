"""Files of photos through a model, in batches; what cannot be read is told, and the rest goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor
from tqdm import tqdm

from pipeline.errors import UserError
from saywhich.model import AT_ONCE
from saywhich.photos import loaded
from saywhich.vectors import Gallery, Looked, gallery

if TYPE_CHECKING:
    from saywhich.model import Model, Sight


class Photos:
    """Photos of one command; `broken` of them could not be read."""

    def __init__(self, model: Model) -> None:
        self.model, self.broken = model, 0

    def seen(self, files: Sequence[Path]) -> Iterator[tuple[list[Path], Sight]]:
        """Those that can be read, in batches, and what they are to the model; a line on stderr for each other one."""
        for part in loaded(files, self.model.prepare, AT_ONCE):
            there = [(file, tensor) for file, tensor in part if isinstance(tensor, Tensor)]
            for _, error in part:
                if isinstance(error, UserError):
                    self.broken += 1
                    tqdm.write(str(error), file=sys.stderr)
            if there:
                yield [file for file, _ in there], self.model.look([tensor for _, tensor in there])

    def look(self, paths: Sequence[str]) -> Iterator[Looked]:
        """The listener's vectors of those that can be read, as `saywhich.vectors.gallery` asks for them."""
        for there, sight in self.seen([Path(path) for path in paths]):
            yield [str(path) for path in there], sight.contents, sight.vectors.numpy()

    def gallery(self, files: Sequence[Path]) -> Gallery:
        """The listener's vectors of those that can be read, most of them from the cache."""
        return gallery(files, self.model.place.digest, self.model.listener.image.out_features, self.look)
