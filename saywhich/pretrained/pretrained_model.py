"""A pretrained speaker and a pretrained listener, applied to photos in memory as a trained `saywhich.Model` is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError
from saywhich.judging.photo_vectors import CaptionJudge, prepared_digest
from saywhich.model import Caption, Distractors, SearchHit, best_matches, listed, ranked_captions
from saywhich.photos import Photo, load_in_threads
from saywhich.pragmatic_decoding import DISTRACTORS, NEEDS_AMONG, SPEAKER, PragmaticDecoding, PragmaticGallery
from saywhich.pretrained.pretrained_speaker import DecodedPhoto, GenerationSettings, PretrainedSpeaker
from saywhich.pretrained.retrieval_generation import decode_pragmatically

PHOTOS = 8  # photos in one batch


@dataclass(frozen=True)
class PretrainedFeatures:
    """M photos: decoded for the speaker, embedded by the listener (M, H), and the digests of the listener's inputs."""

    photos: tuple[DecodedPhoto, ...]
    vectors: Tensor
    contents: tuple[str, ...]
    boxes: None = None  # pretrained speakers attend to no known regions

    def __len__(self) -> int:
        return len(self.photos)

    @property
    def unlike(self) -> tuple[bool, ...]:
        """Return False for each photo: the training images of pretrained models are not known."""
        return (False,) * len(self)

    def split(self, size: int) -> Iterator[PretrainedFeatures]:
        """Split the photos into parts of at most `size`."""
        for first in range(0, len(self), size):
            some = slice(first, first + size)
            yield PretrainedFeatures(self.photos[some], self.vectors[some], self.contents[some])


@dataclass(frozen=True)
class PretrainedModel:
    """A pretrained speaker and a pretrained listener. Images are those that a trained `Model` takes, except films."""

    speaker: PretrainedSpeaker
    listener: CaptionJudge
    settings: GenerationSettings

    def caption(
        self,
        images: Sequence[Photo] | Photo,
        *,
        beam: int = 5,
        samples: int | None = None,
        among: Sequence[Photo] | Photo | None = None,
        pragmatic: float | None = None,
        distractors: int = DISTRACTORS,
        posterior: str = SPEAKER,
        seed: int = 0,
    ) -> list[Caption]:
        """Generate a caption for each of M images, as `Model.caption` does; `among` are N distractors."""
        others = gallery = None
        if among is not None:
            seen = self.extract_features(among)
            others = Distractors(seen.vectors, seen.contents)
        if pragmatic is not None:
            decoding = PragmaticDecoding(pragmatic, distractors, posterior)
            if others is None:
                raise UserError(NEEDS_AMONG)
            gallery = self.gallery_of(decoding, seen)
        sight = self.extract_features(images)
        return self.caption_features(sight, beam=beam, samples=samples, among=others, seed=seed, pragmatic=gallery)

    def gallery_of(
        self, decoding: PragmaticDecoding, seen: PretrainedFeatures
    ) -> PragmaticGallery[Sequence[DecodedPhoto]]:
        """Return the photos `seen` as those among which distractors are found."""
        others = Distractors(seen.vectors, seen.contents)
        return PragmaticGallery(decoding, others, lambda rows: [seen.photos[row] for row in rows])

    def score(self, captions: Sequence[str], images: Sequence[Photo] | Photo) -> np.ndarray:
        """Return the listener's scores (N, M) float32 of N captions and M images, cosines in −1 … 1."""
        return (self.encode_text(captions) @ self.extract_features(images).vectors.T).numpy()

    def find(self, text: str, images: Sequence[Photo] | Photo, top: int | None = 10) -> list[SearchHit]:
        """Return the `top` of M images that score highest with `text`, best first; None returns all."""
        return best_matches(self.encode_text([text])[0], self.extract_features(images).vectors, top)

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        """Return the listener's embeddings (N, H) of N captions, each of length 1; one text counts as a list of one."""
        return self.listener.encode_texts([captions] if isinstance(captions, str) else captions).cpu()

    def extract_features(self, images: Sequence[Photo] | Photo) -> PretrainedFeatures:
        """Decode and embed M images; raises UserError for the first that cannot be read."""
        photos: list[DecodedPhoto] = []
        contents: list[str] = []
        vectors = [torch.zeros(0, self.listener.size)]
        for part in load_in_threads(listed(images), self.speaker.prepare, PHOTOS):
            for _, photo in part:
                if isinstance(photo, UserError):
                    raise photo
                photos.append(photo)
            prepared = [self.listener.prepare(photo.image) for photo in photos[-len(part) :]]
            vectors.append(torch.from_numpy(self.listener.encode_photos(prepared)))
            contents += map(prepared_digest, prepared)
        return PretrainedFeatures(tuple(photos), torch.cat(vectors), tuple(contents))

    def caption_features(
        self,
        sight: PretrainedFeatures,
        *,
        beam: int = 5,
        samples: int | None = None,
        among: Distractors | None = None,
        seed: int = 0,
        pragmatic: PragmaticGallery[Sequence[DecodedPhoto]] | None = None,
    ) -> list[Caption]:
        """Generate captions as `caption` does, from extracted features; with `pragmatic`, by pragmatic decoding."""
        whole = among is not None and pragmatic is None
        settings = replace(self.settings, beam=beam, samples=samples, whole_beam=whole, seed=seed)
        captions: list[Caption] = []
        for part in sight.split(PHOTOS if samples is None and pragmatic is None else 1):
            if pragmatic is None:
                texts = self.speaker.candidates(part.photos, settings)
            else:
                texts = decode_pragmatically(
                    self.speaker, self.listener, part.photos, part.vectors, part.contents, pragmatic, settings
                )
            if among is None:
                captions += [Caption(said[0], tuple(said)) for said in texts]
            else:
                heard = torch.stack([self.encode_text(said) for said in texts])
                captions += ranked_captions(texts, heard, part.vectors, part.contents, among)
        return captions
