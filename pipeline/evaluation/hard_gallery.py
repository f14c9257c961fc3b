"""Hard galleries: each image among images that are similar to it by their facts or by a retriever."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.metrics.retrieval import similar_distractors
from pipeline.worlds.films.film_facts import FACTS as FILM_FACTS
from pipeline.worlds.scenes.scene_facts import FACTS

HardGallery = Callable[[np.ndarray], Tensor]
"""Function of images (M,), rows of the prepared data; returns places (M, K) of similar images, padded with −1."""
NEAR = "neighbourhood"  # the gallery's name


def galleries_by_facts(prepared: Prepared) -> HardGallery:
    """Return galleries of an image's neighbourhood, or of equal setting, weather and light if the data have none.

    Raises UserError if the file of facts, or the facts of an image, are missing.
    """
    paths = [prepared.folder / name for name in (FACTS, FILM_FACTS)]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise UserError(
            f"{paths[0]}: missing; evaluate.hard_gallery.similarity = facts needs the facts of drawn scenes or films"
        )
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    groups: dict[str, Hashable] = {str(record["imgid"]): _group(record) for record in records}

    def near(rows: np.ndarray) -> Tensor:
        names = prepared.ids.take(rows).to_pylist()
        if missing := [name for name in names if name not in groups]:
            raise UserError(f"{prepared.folder}: no facts of image {missing[0]}; run the prepare stage again")
        return galleries_by_key([groups[name] for name in names])

    return near


def galleries_by_vectors(look: Callable[[Tensor], Tensor], images: int) -> HardGallery:
    """Return galleries of the nearest images by the vectors (M, D) of `look`; each holds at most `images` images.

    The distance is that of `similar_distractors`.
    """

    def near(rows: np.ndarray) -> Tensor:
        return similar_distractors(look(torch.from_numpy(rows)).cpu(), min(images, len(rows)) - 1)

    return near


def galleries_by_key(keys: Sequence[Hashable]) -> Tensor:
    """Return for each of M images the other images of equal key, int64 (M, K), padded with −1."""
    members: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        members.setdefault(key, []).append(place)
    most = max(map(len, members.values()), default=1)
    found = torch.full((len(keys), most - 1), -1)
    for places in members.values():
        for place in places:
            others = [other for other in places if other != place]
            found[place, : len(others)] = torch.tensor(others, dtype=torch.int64)
    return found


def _group(record: dict[str, Hashable]) -> Hashable:
    return record.get(NEAR, (record["setting"], record["weather"], record["light"]))
