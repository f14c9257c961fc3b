"""A trained speaker with a pretrained listener, such as CLIP or SigLIP, in place of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saywhich.captioning_model import CandidateSettings, CaptionCandidates, CaptioningModel
from saywhich.judging.photo_vectors import CaptionJudge, PreparedPhoto, compute_prepared_digest
from saywhich.model import BATCH, Model, PhotoFeatures
from saywhich.photos import UNLIKE, Photo


@dataclass(frozen=True)
class ModelWithListener(CaptioningModel[tuple[Tensor, PreparedPhoto], PhotoFeatures]):
    """A trained model's speaker with a pretrained `listener`, which ranks captions and embeds photos.

    The model's own listener has no influence on captions, ranks and scores.
    """

    photos_at_once = BATCH

    model: Model
    listener: CaptionJudge

    def prepare(self, photo: Photo) -> tuple[Tensor, PreparedPhoto]:
        return self.model.prepare(photo), self.listener.prepare(photo)

    def encode_prepared(self, prepared: Sequence[tuple[Tensor, PreparedPhoto]]) -> PhotoFeatures:
        features = self.model.encode_prepared([pixels for pixels, _ in prepared])
        inputs = [each for _, each in prepared]
        contents = [
            compute_prepared_digest(each) + (UNLIKE if unlike else "")
            for each, unlike in zip(inputs, features.unlike, strict=True)
        ]
        vectors = torch.from_numpy(self.listener.encode_photos(inputs))
        return replace(features, vectors=vectors, contents=tuple(contents))

    def make_empty_features(self) -> PhotoFeatures:
        return replace(self.model.make_empty_features(), vectors=torch.zeros(0, self.listener.size))

    def require_listener(self) -> CaptionJudge:
        return self.listener

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        texts = [captions] if isinstance(captions, str) else captions
        return self.listener.encode_texts(texts).float().cpu() if len(texts) else torch.zeros(0, self.listener.size)

    def generate_candidates(
        self, features: PhotoFeatures, settings: CandidateSettings[PhotoFeatures]
    ) -> CaptionCandidates:
        if settings.pragmatic is not None:
            settings = replace(settings, pragmatic=replace(settings.pragmatic, listener=self.listener))
        texts = self.model.generate_candidates(features, settings).texts
        return CaptionCandidates(texts, lambda: torch.stack([self.encode_text(each) for each in texts]))
