"""Image ids in visdial_params.json, the order of the rows in the HDF5 files of dialogs and of features."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pipeline.errors import UserError


def read_image_ids(params: Any, split: str, file: Path) -> list[str]:
    """Return the ids of a split's images from the content `params` of `file`: numbers, or last numbers of names.

    Raises UserError where the split has no list, or an image has no number.
    """
    listed = params.get(f"img_{split}", params.get(f"unique_img_{split}")) if isinstance(params, dict) else None
    if not isinstance(listed, list):
        raise UserError(f"{file}: expected an object with the list `img_{split}`")
    try:
        return [str(int(re.findall(r"\d+", str(image))[-1])) for image in listed]
    except IndexError:
        raise UserError(f"{file}: img_{split} has images without a number") from None
