"""A pretrained speaker with a pretrained listener: captions of photo files, in a stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tqdm import tqdm

from pipeline.errors import UserError
from saywhich.judging.judge_sources import open_judge
from saywhich.judging.photo_vectors import CaptionJudge, encode_gallery
from saywhich.model import Caption, Distractors, ranked_captions
from saywhich.photos import load_in_threads
from saywhich.pragmatic_decoding import PragmaticDecoding, PragmaticGallery
from saywhich.pretrained.pretrained_speaker import DecodedPhoto, GenerationSettings, PretrainedSpeaker
from saywhich.pretrained.retrieval_generation import decode_pragmatically

AT_ONCE = 32  # captions that are generated in one batch
PHOTOS = 8  # at most so many decoded photos in a batch


def open_listener(name: str) -> CaptionJudge:
    """Open the listener of that name, which is any that `saywhich judge --judge` takes; raises UserError as it does."""
    try:
        return open_judge(name)
    except UserError as error:
        raise UserError(str(error).replace("--judge", "--listener")) from None


@dataclass
class PretrainedCaptioner:
    """A pretrained speaker and, where candidates are ranked, a listener; `broken` counts the unreadable photos."""

    speaker: PretrainedSpeaker
    listener: CaptionJudge | None = None
    settings: GenerationSettings = field(default_factory=GenerationSettings)
    at_once: int = AT_ONCE
    pragmatic: PragmaticDecoding | None = None
    broken: int = 0

    def stream(self, files: Sequence[Path], gallery: Sequence[Path] = ()) -> Iterator[tuple[list[Path], list[Caption]]]:
        """Yield the readable photos and a caption of each, in batches; report each other photo in a line on stderr.

        With a gallery, the listener ranks the photo among the gallery's photos by each candidate, and the candidate
        with the largest margin is taken. The listener's photo embeddings come from the cache where possible. With
        `pragmatic`, candidates are told from the nearest photos of the gallery word by word.
        """
        if not gallery:
            for there, photos in self._photos(files):
                yield there, [Caption(said[0], tuple(said)) for said in self.speaker.candidates(photos, self.settings)]
            return
        assert self.listener is not None
        listener, wanted = self.listener, list(dict.fromkeys([*gallery, *files]))
        seen = encode_gallery(listener, wanted)
        self.broken += len(wanted) - len(seen.files)
        row_of = {file: row for row, file in enumerate(seen.files)}
        vectors = torch.from_numpy(seen.vectors)
        rows = [row_of[file] for file in gallery if file in row_of]
        among = Distractors(vectors[rows], tuple(seen.contents[row] for row in rows))
        for there, photos in self._photos([file for file in files if file in row_of]):
            own = [row_of[file] for file in there]
            contents = [seen.contents[row] for row in own]
            if self.pragmatic is None:
                texts = self.speaker.candidates(photos, self.settings)
            else:
                told = PragmaticGallery(self.pragmatic, among, lambda at: self._read([seen.files[rows[i]] for i in at]))
                texts = decode_pragmatically(
                    self.speaker, listener, photos, vectors[own], contents, told, self.settings
                )
            heard = torch.stack([listener.encode_texts(said) for said in texts]).cpu()
            yield there, ranked_captions(texts, heard, vectors[own], contents, among)

    def _photos(self, files: Sequence[Path]) -> Iterator[tuple[list[Path], list[DecodedPhoto]]]:
        """Yield readable photos in batches of at most `at_once` captions, or one photo with all of its captions."""
        width = self.pragmatic.width if self.pragmatic else 1
        size = min(PHOTOS, max(1, self.at_once // (width * (self.settings.samples or self.settings.beam))))
        for part in load_in_threads(files, self.speaker.prepare, size):
            there = [(file, photo) for file, photo in part if isinstance(photo, DecodedPhoto)]
            for _, error in part:
                if isinstance(error, UserError):
                    self.broken += 1
                    tqdm.write(str(error), file=sys.stderr)
            if there:
                yield [file for file, _ in there], [photo for _, photo in there]

    def _read(self, files: Sequence[Path]) -> list[DecodedPhoto]:
        """Decode distractors, which the listener has read before; raises UserError for one that has changed since."""
        photos = []
        for part in load_in_threads(files, self.speaker.prepare, PHOTOS):
            for _, photo in part:
                if isinstance(photo, UserError):
                    raise photo
                photos.append(photo)
        return photos
