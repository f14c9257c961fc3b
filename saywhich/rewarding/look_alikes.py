"""Look-alikes of any photo among the photos of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.errors import UserError
from saywhich.judging.hard_galleries import SPARE
from saywhich.judging.judge_sources import open_encoder
from saywhich.judging.photo_vectors import PhotoEncoder, encode_gallery
from saywhich.judging.thumbnails import COLOURS, MAX_COLOUR_DIFFERENCE, Thumbnails
from saywhich.photos import Photo, list_photo_files


class LookAlikes:
    """The photos of a folder with a judge's embeddings, searched by another encoder's embeddings."""

    def __init__(self, folder: Path, judge: PhotoEncoder, neighbours: str) -> None:
        """Encode the folder; report each photo that cannot be decoded in a line on stderr, and leave it out.

        Raises UserError for an unknown encoder, and for a folder without a photo that can be decoded. Raises UserError
        where the encoder or the judge cannot read a decoded photo.
        """
        self._thumbnails, self._encoder = Thumbnails(), open_encoder(neighbours)
        thumbnails = encode_gallery(self._thumbnails, list_photo_files([folder]))
        if not thumbnails.files:
            raise UserError(f"reward: photos = {folder}; none of its photos can be decoded: give another folder")
        self._colours = torch.from_numpy(thumbnails.vectors)[:, :COLOURS]
        vectors = self._encode_files(self._encoder, thumbnails.files).double()
        self._centre = vectors.mean(0)
        self._unit = normalize(vectors - self._centre, dim=1)
        self._judge_vectors = torch.cat([self._encode_files(judge, thumbnails.files), torch.zeros(1, judge.size)])
        self.files = thumbnails.files

    def get_embeddings(self, photos: Sequence[Photo], count: int) -> Tensor:
        """Return the judge's embeddings (B, `count`, H) of the look-alikes of each of B photos, padded with zeros."""
        return self._judge_vectors[self.find_nearest(photos, count)]

    def find_nearest(self, photos: Sequence[Photo], count: int) -> Tensor:
        """Return the rows (B, `count`) int64 of the folder's photos nearest to each of B photos, padded with −1.

        Nearness is the cosine of mean-centred embeddings. Near-duplicates of a photo, and the photo itself, are left
        out. Only the `count` + SPARE + 1 nearest are considered: with more near-duplicates there are fewer look-alikes.
        """
        thumbnails = _encode(self._thumbnails, photos)
        vectors = thumbnails if isinstance(self._encoder, Thumbnails) else _encode(self._encoder, photos)
        cosines = normalize(vectors.double() - self._centre, dim=1) @ self._unit.T
        nearest = cosines.topk(min(count + SPARE + 1, len(self._unit)), dim=1).indices
        rows = torch.full((len(photos), count), -1)
        for row, (candidates, colours) in enumerate(zip(nearest, thumbnails[:, :COLOURS], strict=True)):
            neighbours = candidates[(self._colours[candidates] - colours).abs().amax(1) > MAX_COLOUR_DIFFERENCE][:count]
            rows[row, : len(neighbours)] = neighbours
        return rows

    @staticmethod
    def _encode_files(encoder: PhotoEncoder, files: Sequence[Path]) -> Tensor:
        gallery = encode_gallery(encoder, files)
        if len(gallery.files) < len(files):
            unreadable = len(files) - len(gallery.files)
            raise UserError(f"reward: {encoder.name} cannot read {unreadable} of the photos; remove them")
        return torch.from_numpy(gallery.vectors)


def _encode(encoder: PhotoEncoder, photos: Sequence[Photo]) -> Tensor:
    return torch.from_numpy(encoder.encode_photos([encoder.prepare(photo) for photo in photos]))
