"""Hard bags of a folder's photos by the embeddings of any encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.errors import UserError
from saywhich.bagging.bag_formation import find_earlier_duplicates, form_bags
from saywhich.judging.judge_sources import open_encoder
from saywhich.judging.photo_vectors import encode_gallery
from saywhich.judging.thumbnails import Thumbnails
from saywhich.photos import list_photo_files

RULE = (
    "no mean colour of 8 × 8 cells differs by more than 3 % of the range; the first photo by name is "
    "kept, and a folder's own photos precede those of folders below it"
)


@dataclass(frozen=True)
class PhotoBag:
    """Look-alike photos, and the cosine of each further photo's embedding with the embedding of the first photo."""

    photos: tuple[Path, ...]
    cosines: tuple[float, ...]


@dataclass(frozen=True)
class PhotoBags:
    """Bags of a folder, the tightest first, its near-duplicates, and the photos in no bag."""

    folder: Path
    encoder: str
    size: int
    bags: Sequence[PhotoBag]
    near_duplicates: Sequence[tuple[Path, Path]]  # removed photo, kept photo
    ungrouped: Sequence[Path]

    @property
    def photos(self) -> int:
        """Return the number of photos that could be read."""
        return sum(len(bag.photos) for bag in self.bags) + len(self.near_duplicates) + len(self.ungrouped)

    @property
    def summary(self) -> str:
        """Return the counts in one sentence."""
        removed = f"{len(self.near_duplicates):,} near-duplicates removed"
        return (
            f"{self.photos:,} photos, {removed}; {len(self.bags):,} bags of {self.size} look-alikes by {self.encoder}, "
            f"{len(self.ungrouped):,} photos in no bag"
        )

    def name(self, photo: Path) -> str:
        """Return a photo's path below the folder."""
        return photo.relative_to(self.folder).as_posix()

    @property
    def galleries(self) -> Mapping[str, Sequence[str]]:
        """Return the other photos of each photo's bag, in the form of `saywhich judge --galleries`."""
        return {
            self.name(photo): [self.name(other) for other in bag.photos if other != photo]
            for bag in self.bags
            for photo in bag.photos
        }

    def record(self) -> dict[str, Any]:
        """Return the bags and counts as values of JSON."""
        return {
            "photos": self.photos,
            "encoder": self.encoder,
            "size": self.size,
            "near_duplicate_rule": RULE,
            "near_duplicates": [[self.name(removed), self.name(kept)] for removed, kept in self.near_duplicates],
            "in_no_bag": [self.name(photo) for photo in self.ungrouped],
            "bags": [
                {"photos": [self.name(photo) for photo in bag.photos], "cosines": list(bag.cosines)}
                for bag in self.bags
            ],
        }


def find_bags(folder: str | Path, size: int, neighbours: str, min_cosine: float, max_bags: int | None) -> PhotoBags:
    """Return bags of `size` look-alike photos in and below `folder`, at most `max_bags`, by the encoder `neighbours`.

    No bag has a cosine below `min_cosine`. Bags contain no near-duplicates; each photo is in at most one bag. Raises
    UserError for a size below 2, `max_bags` below 1, a cosine out of range, no folder, or an unknown encoder. Raises
    UserError for fewer distinct photos than a bag holds, and for a photo that the encoder cannot read.
    """
    if size < 2:
        raise UserError(f"--size {size}: a bag holds 2 photos or more; give 2 or more")
    if max_bags is not None and max_bags < 1:
        raise UserError(f"--max-bags {max_bags}: give 1 or more")
    if not -1 <= min_cosine <= 1:
        raise UserError(f"--min-cosine {min_cosine:g}: give a cosine, −1 … 1")
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: is no folder; give a folder of photos")
    encoder = open_encoder(neighbours)
    thumbnails = encode_gallery(Thumbnails(), list_photo_files([folder]))
    duplicates = find_earlier_duplicates(torch.from_numpy(thumbnails.vectors))
    distinct = np.flatnonzero(duplicates < 0)
    if len(distinct) < size:
        raise UserError(
            f"{folder}: --size {size} needs {size} distinct photos, found {len(distinct)}; give a smaller --size, "
            "or more photos"
        )
    files = [thumbnails.files[row] for row in distinct]
    gallery = encode_gallery(encoder, files)
    if list(gallery.files) != files:
        raise UserError(
            f"--neighbours {neighbours}: cannot read {len(files) - len(gallery.files)} of the photos; remove them, or "
            "give another encoder"
        )
    groups = form_bags(torch.from_numpy(gallery.vectors), size, min_cosine)
    bags = [
        PhotoBag(tuple(files[row] for row in members), tuple(cosines))
        for members, cosines in zip(groups.members.tolist()[:max_bags], groups.cosines.tolist()[:max_bags], strict=True)
    ]
    bag_photos = {photo for bag in bags for photo in bag.photos}
    near_duplicates = [
        (thumbnails.files[row], thumbnails.files[earlier])
        for row, earlier in enumerate(duplicates.tolist())
        if earlier >= 0
    ]
    return PhotoBags(
        Path(folder), encoder.name, size, bags, near_duplicates, [file for file in files if file not in bag_photos]
    )
