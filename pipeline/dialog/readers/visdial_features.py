"""Import of the image features of visDial.pytorch: `vdl_img_vgg.h5`."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from pathlib import Path

from pipeline.errors import UserError, reason
from pipeline.features.imported import Digests, FeatureFormat, ImportedRow
from pipeline.runtime.files import sha256
from pipeline.runtime.untrusted import read_dataset, require_plain_file


def _of_visdial(ids: Sequence[str], files: Sequence[Path], digests: Digests) -> Generator[ImportedRow, None, None]:
    """Yield grids (H, W, D): rows of `images_train` and `images_val`, whose images `img_train` and `img_val` name."""
    import h5py

    file, params = files
    try:
        named = json.loads(require_plain_file(params).read_text(encoding="utf-8"))
        opened = h5py.File(require_plain_file(file), "r")
    except (OSError, ValueError) as error:
        raise UserError(f"{file}, {params}: the features of VisDial cannot be read ({reason(error)})") from None
    with opened:
        places: dict[str, tuple[str, int]] = {}
        for split in [key.removeprefix("images_") for key in opened if key.startswith("images_")]:
            images = named.get(f"img_{split}", named.get(f"unique_img_{split}", []))
            rows = len(read_dataset(opened, f"images_{split}"))
            if len(images) != rows:
                raise UserError(
                    f"{file}: images_{split} has {rows} rows, but {params} names {len(images)} images of it"
                )
            numbers = (re.findall(r"\d+", str(image))[-1] for image in images)
            places |= {str(int(number)): (f"images_{split}", row) for row, number in enumerate(numbers)}
        for row, id_ in enumerate(ids):
            if id_ not in places:
                raise UserError(f"{file}: image {id_} has no features there; {params} does not name it")
            name, at = places[id_]
            yield ImportedRow(row, str(file), read_dataset(opened, name)[at])
    digests |= {str(path): sha256(path) for path in files}


VISDIAL_FEATURES = FeatureFormat(
    "visdial",
    "[vdl_img_vgg.h5, visdial_params.json]: grids, and the images that they are of",
    _of_visdial,
    lambda regions: not isinstance(regions, str) and len(regions) == 2,
)
