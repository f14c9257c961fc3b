"""Captions of photo files by a pretrained speaker and listener, in a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pipeline.errors import UserError
from pipeline.evaluation.rerank_scores import MARGIN, SIMILARITY
from saywhich.captioning_model import Caption
from saywhich.encoded_photos import EncodedPhotos
from saywhich.judging.judge_sources import open_judge
from saywhich.judging.photo_vectors import CaptionJudge, encode_gallery
from saywhich.photos import load_each, load_readable
from saywhich.pragmatic_decoding import PragmaticDecoding, PragmaticGallery
from saywhich.pretrained.pretrained_model import PHOTOS, PretrainedFeatures, PretrainedModel
from saywhich.pretrained.pretrained_speaker import DecodedPhoto

BATCH = 32  # captions that are generated in one batch


def open_listener(name: str) -> CaptionJudge:
    """Open the listener `name`, in any form that `--judge` takes; raises UserError as `open_judge` does."""
    try:
        return open_judge(name)
    except UserError as error:
        raise UserError(str(error).replace("--judge", "--listener")) from None


@dataclass
class PretrainedCaptioner:
    """A pretrained model that captions files by its settings; `unreadable` counts a gallery's unreadable photos."""

    model: PretrainedModel
    batch: int = BATCH
    pragmatic: PragmaticDecoding | None = None
    score: str = MARGIN
    unreadable: int = 0

    def stream(self, files: Sequence[Path], gallery: Sequence[Path] = ()) -> Iterator[tuple[list[Path], list[Caption]]]:
        """Yield the readable photos and a caption of each, in batches; report each other photo in a line on stderr.

        With a gallery, the listener ranks the photo among the gallery's photos by each candidate, and the candidate
        with the largest margin is taken. The score "similarity" takes the candidate most similar to the photo and needs
        no gallery. The listener's photo embeddings come from the cache where possible. With `pragmatic`, each word is
        chosen by pragmatic decoding against the nearest photos of the gallery. Raises UserError where a listener is
        needed and missing, and where a distractor can no longer be read.
        """
        if not gallery and self.score != SIMILARITY:
            for part, photos in self._load_batches(files):
                contents = tuple(photo.content for photo in photos)
                yield part, self._caption(_make_features(EncodedPhotos(torch.zeros(len(part), 0), contents), photos))
            return
        all_photos = encode_gallery(self.model.require_listener(), list(dict.fromkeys([*gallery, *files])))
        embedded_photos = EncodedPhotos(torch.from_numpy(all_photos.vectors), all_photos.contents)
        row_by_file = {file: row for row, file in enumerate(all_photos.files)}
        rows = [row_by_file[file] for file in gallery if file in row_by_file]
        self.unreadable = len(gallery) - len(rows)
        among = embedded_photos.select(rows)

        def read(indices: Sequence[int]) -> PretrainedFeatures:
            return _make_features(among.select(indices), self._decode([all_photos.files[rows[i]] for i in indices]))

        pragmatic = PragmaticGallery(self.pragmatic, among, read) if self.pragmatic else None
        for part, photos in self._load_batches([file for file in files if file in row_by_file]):
            features = _make_features(embedded_photos.select([row_by_file[file] for file in part]), photos)
            yield part, self._caption(features, among if gallery else None, pragmatic)

    def _caption(
        self,
        features: PretrainedFeatures,
        among: EncodedPhotos | None = None,
        pragmatic: PragmaticGallery[PretrainedFeatures] | None = None,
    ) -> list[Caption]:
        model, settings = replace(self.model, batch=len(features)), self.model.settings
        return model.caption_features(
            features,
            beam=settings.beam,
            samples=settings.samples,
            seed=settings.seed,
            among=among,
            pragmatic=pragmatic,
            score=self.score,
        )

    def _load_batches(self, files: Sequence[Path]) -> Iterator[tuple[list[Path], list[DecodedPhoto]]]:
        """Yield readable photos in batches of at most PHOTOS photos and `batch` captions, or of one photo."""
        width, settings = self.pragmatic.width if self.pragmatic else 1, self.model.settings
        size = min(PHOTOS, max(1, self.batch // (width * (settings.samples or settings.beam))))
        yield from load_readable(files, self.model.prepare, size)

    def _decode(self, files: Sequence[Path]) -> list[DecodedPhoto]:
        """Decode embedded distractors for the speaker; raises UserError for a file that can no longer be read."""
        return [photo for part in load_each(files, self.model.prepare, PHOTOS) for photo in part]


def _make_features(encoded: EncodedPhotos, photos: Sequence[DecodedPhoto]) -> PretrainedFeatures:
    return PretrainedFeatures(encoded.vectors, encoded.contents, photos=tuple(photos))
