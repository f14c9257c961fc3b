"""Assignment of images to splits: by a split's name, by a file of splits, or at random."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipeline.data.corpus import SPLITS
from pipeline.errors import UserError
from pipeline.readers.annotation_file import FilePosition, JsonEntry, JsonFile, show_json


class Splits(NamedTuple):
    """Splits of the images that a file names by id or file name."""

    by_image: dict[str, str]
    restval: int  # number of images that the file calls restval


def parse_split(name: str, position: FilePosition) -> str:
    """Return train, val or test; restval (COCO's val2014 images that Karpathy trains on) becomes train.

    Raises a UserError that names `position` for another name.
    """
    split = "train" if name == "restval" else name
    if split not in SPLITS:
        position.fail(f"the split {show_json(name)} is unknown; give one of {', '.join(SPLITS)}, restval")
    return split


def count_restval(rows: Iterable[JsonEntry]) -> int:
    """Return the number of images in the split restval."""
    return sum(row.value["split"] == "restval" for row in rows)


def read_splits(file: Path) -> Splits:
    """Read a JSON file of splits in one of three formats; raises UserError for a mistake in it.

    The first is {split: [image ids or file names]}. The second is a file in Karpathy's format with `filename` and
    `split`. The third is cocotalk.json (neuraltalk2, ImageCaptioning.pytorch) with `split`, and `file_path` or `id`.
    An image without `filename` is named by its `file_path`, without folders, or else by its `id`.
    """
    source = JsonFile(file)
    entries: list[tuple[JsonEntry, str, str]] = []  # position, image, split
    if "images" in source.data:
        for row in source.entries("images"):
            split = row.get("split", str)
            if "filename" in row.value or not {"file_path", "id"} & row.value.keys():
                image = row.get("filename", str)
            elif "file_path" in row.value:
                image = Path(row.get("file_path", str)).name
            else:
                image = str(row.get("id", int | str))
            entries.append((row, image, split))
    else:
        for split, members in source.data.items():
            if not isinstance(members, list):
                raise UserError(
                    f"{file}: `{split}` must be a list of image ids or file names, not {show_json(members)}; correct it"
                )
            for member in source.entries(split):
                if not isinstance(member.value, str | int) or isinstance(member.value, bool):
                    member.fail(f"expected an image id or a file name, found {show_json(member.value)}; correct it")
                entries.append((member, str(member.value), split))
    by_image: dict[str, str] = {}
    for position, image, split in entries:
        if image in by_image:
            position.fail(f"image {image} occurs here a second time; remove one of its entries")
        by_image[image] = parse_split(split, position)
    return Splits(by_image, sum(split == "restval" for _, _, split in entries))


def draw_split(image: str, val: float, test: float, seed: int) -> str:
    """Draw the split of an image by the probabilities `val` and `test`, from the seed and the image's name.

    The split val holds n·val ± √(n·val·(1 − val)) of n images: mean and standard deviation over seeds. For val = 0.1,
    these are 10 ± 3 of 100 and 1,000 ± 30 of 10,000 images. Other images do not affect the result.
    """
    digest = hashlib.blake2b(f"{seed}\n{image}".encode(), digest_size=8).digest()
    uniform = int.from_bytes(digest, "big") / 2**64  # uniform in [0, 1)
    if uniform < val:
        return "val"
    return "test" if uniform < val + test else "train"
