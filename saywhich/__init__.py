"""Trained speakers and listeners at work: captions that say which photo, and photos found by words.

>>> import saywhich
>>> model = saywhich.load("data/models/psst_multinomial")  # or a folder that `saywhich export` wrote
>>> captions = model.caption(["a.jpg", "b.jpg"])
>>> print(*captions, sep="\\n")  # doctest: +SKIP
a brown dog runs on the beach
two boats on a calm sea
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saywhich.model import Caption, Found, Model

__all__ = ["Caption", "Found", "Model", "load"]


def load(folder: str | Path) -> Model:
    """The trained speaker and listener in `folder`, with their eyes: `data/models/<method>` of a repository, a cell of
    its grid, or what `saywhich export` wrote.

    Nothing in the folder is executed. Raises UserError (a ValueError) in one line where something is missing, or is not
    what its digest says.
    """
    from saywhich.folders import load as opened  # here: PyTorch takes a second to import

    return opened(Path(folder))


def __getattr__(name: str) -> object:
    if name in __all__:
        from saywhich import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
