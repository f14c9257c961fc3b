"""Which image is in which split: by its name there, by a file of splits, or at random."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pipeline.data.corpus import SPLITS
from pipeline.errors import UserError
from pipeline.readers.annotation_file import Place, Row, get, load, rows_of, show


@dataclass(frozen=True, slots=True)
class Splits:
    """Image id or file name → split, as a file has it."""

    file: Path
    named: dict[str, str]
    restval: int  # how many the file calls restval


def split_of(name: str, place: Place | Row) -> str:
    """train, val or test; restval (COCO's val2014 images that Karpathy trains on) is train."""
    split = "train" if name == "restval" else name
    if split not in SPLITS:
        place.fail(f"the split {show(name)} is unknown; it is one of {', '.join(SPLITS)}, restval")
    return split


def read_splits(file: Path) -> Splits:
    """Read a JSON file of one of three forms; raises UserError for a mistake in it.

    {split: [image ids or file names]}; a Karpathy-form file, of which `filename` and `split` are read; or
    cocotalk.json (neuraltalk2, ImageCaptioning.pytorch), of which `file_path` without its folders (`id` where there is
    none) and `split` are.
    """
    text, data = load(file)
    read: list[tuple[Place, str, str]] = []  # place, image, split
    if "images" in data:
        for index, row in enumerate(rows_of(data, "images", file)):
            place = Place(file, text, "images", index)
            split = get(row, "split", str, place)
            if "filename" in row or not {"file_path", "id"} & row.keys():
                read.append((place, get(row, "filename", str, place), split))
            elif "file_path" in row:
                read.append((place, Path(get(row, "file_path", str, place)).name, split))
            else:
                read.append((place, str(get(row, "id", int | str, place)), split))
    else:
        for split, members in data.items():
            if not isinstance(members, list):
                raise UserError(f"{file}: `{split}` is to be a list of image ids or file names, not {show(members)}")
            read += [(Place(file, text, split, index), str(member), split) for index, member in enumerate(members)]
    named: dict[str, str] = {}
    for place, image, split in read:
        if image in named:
            place.fail(f"image {image} stands here a second time")
        named[image] = split_of(split, place)
    return Splits(file, named, sum(split == "restval" for _, _, split in read))


def drawn_split(image: str, val: float, test: float, seed: int) -> str:
    """The split of an image at random: it depends on the seed and the image's name alone, so no other image moves it.

    `val` and `test` are chances: of n images, n·val ± √(n·val·(1 − val)) are in val (10 of 100 ± 3, 1,000 of 10,000
    ± 30), for any seed.
    """
    lot = hashlib.blake2b(f"{seed}\n{image}".encode(), digest_size=8).digest()
    drawn = int.from_bytes(lot, "big") / 2**64
    return "val" if drawn < val else "test" if drawn < val + test else "train"
