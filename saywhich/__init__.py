"""Inference with trained speakers and listeners: captions that identify a photo, and photo retrieval by text.

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

from pipeline.runtime.extras import naming_extras

if TYPE_CHECKING:
    from saywhich.model import Caption, Model, SearchHit

__all__ = ["Caption", "Model", "SearchHit", "load"]


def load(folder: str | Path) -> Model:
    """Load the trained speaker and listener in `folder`, with the feature extractor of their images.

    `folder` is `data/models/<method>` of a repository, a cell of its grid, or a folder that `saywhich export` wrote.
    Nothing in it is executed. Raises UserError (a ValueError) in one line where a file is missing, its digest does not
    match, or the model needs an extra that is not installed.
    """
    from saywhich.loading import load_model as opened  # here: PyTorch takes a second to import

    with naming_extras():
        return opened(Path(folder))


def __getattr__(name: str) -> object:
    if name in __all__:
        from saywhich import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
