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
    """Yield the grids (H, W, D) of the images `ids` from the arrays images_*; the lists img_* name their images.

    Raises UserError for unreadable files, lists that do not match the arrays, and an image without features.
    """
    import h5py

    file, params = files
    try:
        content = json.loads(require_plain_file(params).read_text(encoding="utf-8"))
        store = h5py.File(require_plain_file(file), "r")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file}, {params}: the features of VisDial cannot be read ({summarise_error(error)}); name other files"
        ) from None
    with store:
        rows_by_image: dict[str, tuple[str, int]] = {}
        for split in [key.removeprefix("images_") for key in store if key.startswith("images_")]:
            images = read_image_ids(content, split, params)
            rows = len(read_dataset(store, f"images_{split}"))
            if len(images) != rows:
                raise UserError(
                    f"{file}: images_{split} has {rows} rows, but {params} names {len(images)} images; "
                    "name matching files"
                )
            rows_by_image |= {image: (f"images_{split}", row) for row, image in enumerate(images)}
        for row, image in enumerate(ids):
            if image not in rows_by_image:
                raise UserError(
                    f"{file}: image {image} has no features there; {params} does not name it; name a complete file"
                )
            name, image_row = rows_by_image[image]
            yield ImportedRow(row, str(file), read_dataset(store, name)[image_row])
    digests |= {str(path): compute_sha256(path) for path in files}


VISDIAL_FEATURES = FeatureFormat(
    "visdial",
    "[vdl_img_vgg.h5, visdial_params.json]: grids, and the names of their images",
    _read_grids,
    lambda regions: not isinstance(regions, str) and len(regions) == 2,
)
