"""The listener of a trained model, exported or in its repository, as a judge of captions that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from pipeline.data.corpus import tokenise
from pipeline.models.retrieval_pragmatics import TEMPERATURE
from saywhich.judging.clip_metrics import ClipMetric
from saywhich.judging.photo_vectors import PreparedPhoto
from saywhich.loading import load_model
from saywhich.photos import Photo


class ExportedJudge:
    """The listener of the model in a folder; a `CaptionJudge`."""

    metric: ClipMetric | None = None
    temperature = TEMPERATURE

    def __init__(self, folder: Path) -> None:
        """Load the model. Raises UserError as `saywhich.load` does, and where its listener cannot encode photos."""
        self.name = folder.resolve().name
        self.model = load_model(folder)
        self.model.require_listener()
        self.digest = self.model.files.digest
        self.size = self.model.listener.image.out_features

    def prepare(self, photo: Photo) -> PreparedPhoto:
        return {"pixels": self.model.prepare(photo)}

    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        return self.model.encode_prepared([each["pixels"] for each in prepared]).vectors.numpy()

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return self.model.encode_text(texts)

    def find_truncated(self, texts: Sequence[str]) -> list[str]:
        limit = self.model.speaker.max_words
        return [text for text in texts if len(self.model.vocabulary.encode(self._split(text))) > limit]

    def find_unknown(self, texts: Sequence[str]) -> list[str]:
        if self.model.vocabulary.encodes_text:
            return []
        known, unknown_texts = self.model.vocabulary.ids, []
        for text in texts:
            words = tokenise(text)
            if 2 * sum(word not in known for word in words) > len(words):
                unknown_texts.append(text)
        return unknown_texts

    def _split(self, text: str) -> Sequence[str]:
        return text.split() if self.model.vocabulary.encodes_text else tokenise(text)
