"""A pretrained speaker and a pretrained listener, applied to photos as a trained `saywhich.Model` is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.errors import UserError
from saywhich.captioning_model import CandidateSettings, CaptionCandidates, CaptioningModel
from saywhich.encoded_photos import EncodedPhotos
from saywhich.judging.photo_vectors import CaptionJudge, compute_prepared_digest
from saywhich.photos import Photo
from saywhich.pragmatic_decoding import PragmaticGallery
from saywhich.pretrained.pretrained_speaker import DecodedPhoto, GenerationSettings, PretrainedSpeaker
from saywhich.pretrained.retrieval_generation import decode_pragmatically

PHOTOS = 8  # photos in one batch


@dataclass(frozen=True, kw_only=True)
class PretrainedFeatures(EncodedPhotos):
    """M photos, embedded by the listener, if any, and decoded for the speaker; attended regions are unknown."""

    photos: tuple[DecodedPhoto, ...]


@dataclass(frozen=True)
class PretrainedModel(CaptioningModel[DecodedPhoto, PretrainedFeatures]):
    """A pretrained speaker and a pretrained listener; without a listener (None), images are captioned but not ranked.

    The model takes the images that a trained `Model` takes, except films.
    `batch` is the number of photos in one batch; None stands for 8, or for 1 with sampling or pragmatic decoding.
    """

    photos_at_once = PHOTOS

    speaker: PretrainedSpeaker
    listener: CaptionJudge | None
    settings: GenerationSettings
    batch: int | None = None

    def prepare(self, photo: Photo) -> DecodedPhoto:
        return self.speaker.prepare(photo)

    def encode_prepared(self, prepared: Sequence[DecodedPhoto]) -> PretrainedFeatures:
        if self.listener is None:
            vectors, contents = torch.zeros(len(prepared), 0), tuple(photo.content for photo in prepared)
            return PretrainedFeatures(vectors, contents, photos=tuple(prepared))
        inputs = [self.listener.prepare(photo.image) for photo in prepared]
        vectors = torch.from_numpy(self.listener.encode_photos(inputs))
        return PretrainedFeatures(vectors, tuple(map(compute_prepared_digest, inputs)), photos=tuple(prepared))

    def make_empty_features(self) -> PretrainedFeatures:
        return PretrainedFeatures(torch.zeros(0, 0 if self.listener is None else self.listener.size), (), photos=())

    def require_listener(self) -> CaptionJudge:
        """Return the listener; raises UserError where the model has none."""
        if self.listener is None:
            raise UserError(f"{self.speaker.name}: ranking captions needs a listener; give one")
        return self.listener

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        listener, texts = self.require_listener(), [captions] if isinstance(captions, str) else captions
        return listener.encode_texts(texts).cpu() if len(texts) else torch.zeros(0, listener.size)

    def generate_candidates(
        self, features: PretrainedFeatures, settings: CandidateSettings[PretrainedFeatures]
    ) -> CaptionCandidates:
        samples, pragmatic = settings.samples, settings.pragmatic
        generation = replace(
            self.settings,
            beam=settings.beam,
            samples=samples,
            whole_beam=settings.rerank,
            temperature=self.settings.temperature if settings.temperature is None else settings.temperature,
            seed=settings.seed,
        )
        parts = list(features.split(self.batch or (PHOTOS if samples is None and pragmatic is None else 1)))
        if pragmatic is None:
            texts = [each for part in parts for each in self.speaker.generate_candidates(part.photos, generation)]
        else:
            listener, read = self.require_listener(), pragmatic.read
            gallery = PragmaticGallery(pragmatic.decoding, pragmatic.among, lambda rows: read(rows).photos)
            texts = [
                each
                for part in parts
                for each in decode_pragmatically(
                    self.speaker, listener, part.photos, part.vectors, part.contents, gallery, generation
                )
            ]
        return CaptionCandidates(texts, lambda: torch.stack([self.encode_text(each) for each in texts]))
