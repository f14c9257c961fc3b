"""Hard galleries: each photo's nearest neighbours by an encoder that is no judge, or galleries from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.metrics.retrieval import find_similar_distractors
from pipeline.runtime.records import parse_json, read_bytes
from saywhich.judging.caption_files import MAX_JSON_BYTES, ImageKey
from saywhich.judging.notes import Notes
from saywhich.judging.photo_index import PhotoIndex
from saywhich.judging.thumbnails import find_near_duplicates

SPARE = 16  # neighbours beyond the gallery's size, which take the place of near-duplicates

Galleries = Mapping[str, Sequence[str]]  # a photo's file → the files of the other photos in its gallery


def find_neighbour_galleries(vectors: Tensor, thumbnails: Tensor, images: int, keep_duplicates: bool) -> Tensor:
    """Return each photo's nearest other photos by `vectors` (M, H), as rows (M, K) int64 padded with −1.

    K is the smaller of `images` and M, minus 1. Near-duplicates by `thumbnails` are left out, unless `keep_duplicates`.
    """
    count = min(images, len(vectors)) - 1
    nearest = find_similar_distractors(vectors, min(count + (0 if keep_duplicates else SPARE), len(vectors) - 1))
    if keep_duplicates:
        return nearest[:, :count]
    duplicates = find_near_duplicates(thumbnails, nearest)
    order = duplicates.long().argsort(dim=1, stable=True)[:, :count]
    return nearest.gather(1, order).masked_fill_(duplicates.gather(1, order), -1)


def read_galleries(file: Path) -> Galleries:
    """Read a JSON file {photo: [other photos]}. Raises UserError for a missing file and other content."""
    content = parse_json(
        read_bytes(file, "give another file", MAX_JSON_BYTES), str(file), "give {photo: [other photos]}"
    )
    if not isinstance(content, dict) or not all(
        isinstance(others, list) and all(isinstance(name, str) for name in others) for others in content.values()
    ):
        raise UserError(
            f"{file}: expected a mapping {{photo: [other photos]}} of names, found another form; correct it"
        )
    return content


def resolve_galleries(galleries: Galleries, index: PhotoIndex, files: Sequence[Path], notes: Notes) -> Tensor:
    """Return the galleries of `files` (M,) as rows (M, K) int64, padded with −1.

    Photos without captions are left out; names that match no photo, or more than one, are left out with a note. A photo
    without a gallery is noted. A photo with several galleries is noted, and keeps the last one.
    """
    row_by_path = {path: row for row, path in enumerate(files)}

    def find_row(name: ImageKey) -> int | None:
        path = index.find(name)
        if path is None:
            notes.add("names in hard galleries that match no photo, or more than one, and are left out", name)
            return None
        return row_by_path.get(path)

    rows: list[list[int]] = [[] for _ in files]
    rows_read: set[int] = set()
    for name, neighbours in galleries.items():
        if (row := find_row(name)) is not None:
            if row in rows_read:
                notes.add("photos with several hard galleries, of which the last counts", name)
            rows_read.add(row)
            members = (find_row(each) for each in neighbours)
            rows[row] = list(dict.fromkeys(other for other in members if other is not None and other != row))
    padded = torch.full((len(files), max(map(len, rows), default=0)), -1)
    for row, gallery in enumerate(rows):
        if not gallery:
            notes.add("judged photos without a hard gallery, which R@1 (hard) leaves out", files[row].name)
        padded[row, : len(gallery)] = torch.tensor(gallery, dtype=torch.int64)
    return padded
