"""Import of the image features of visDial.pytorch: `vdl_img_vgg.h5`."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path

from pipeline.dialog.readers.visdial_image_ids import read_image_ids
from pipeline.errors import UserError, summarise_error
from pipeline.features.imported import Digests, FeatureFormat, ImportedRow
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.untrusted import read_dataset, require_plain_file


def _read_grids(ids: Sequence[str], files: Sequence[Path], digests: Digests) -> Generator[ImportedRow, None, None]:
    """Yield grids (H, W, D) from `images_train` and `images_val`; `img_train` and `img_val` name their images."""
    import h5py

    file, params = files
    try:
        names = json.loads(require_plain_file(params).read_text(encoding="utf-8"))
        store = h5py.File(require_plain_file(file), "r")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file}, {params}: the features of VisDial cannot be read ({summarise_error(error)})"
        ) from None
    with store:
        rows_by_image: dict[str, tuple[str, int]] = {}
        for split in [key.removeprefix("images_") for key in store if key.startswith("images_")]:
            images = read_image_ids(names, split, params)
            rows = len(read_dataset(store, f"images_{split}"))
            if len(images) != rows:
                raise UserError(f"{file}: images_{split} has {rows} rows, but {params} names {len(images)} images")
            rows_by_image |= {image: (f"images_{split}", row) for row, image in enumerate(images)}
        for row, id_ in enumerate(ids):
            if id_ not in rows_by_image:
                raise UserError(f"{file}: image {id_} has no features there; {params} does not name it")
            name, image_row = rows_by_image[id_]
            yield ImportedRow(row, str(file), read_dataset(store, name)[image_row])
    digests |= {str(path): compute_sha256(path) for path in files}


VISDIAL_FEATURES = FeatureFormat(
    "visdial",
    "[vdl_img_vgg.h5, visdial_params.json]: grids, and the names of their images",
    _read_grids,
    lambda regions: not isinstance(regions, str) and len(regions) == 2,
)
