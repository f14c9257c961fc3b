"""Image ids in visdial_params.json, in the order of the rows of the HDF5 files of dialogs and of features."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pipeline.errors import UserError


def read_image_ids(params: Any, split: str, file: Path) -> list[str]:
    """Return the ids of a split's images from the content `params` of `file`: the last number in each image's name.

    Raises UserError where the split has no list, or an image has no number.
    """
    images = params.get(f"img_{split}", params.get(f"unique_img_{split}")) if isinstance(params, dict) else None
    if not isinstance(images, list):
        raise UserError(
            f"{file}: expected an object with the list `img_{split}` or `unique_img_{split}`, found neither; "
            "use the file of prepro.py"
        )
    try:
        return [str(int(re.findall(r"\d+", str(image))[-1])) for image in images]
    except IndexError:
        raise UserError(
            f"{file}: expected a number in each image name of the split {split}, found a name without one; "
            "use the file of prepro.py"
        ) from None
