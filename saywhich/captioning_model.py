"""A speaker and a listener, applied to photos: captions, captions that identify a photo, and search by text."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import numpy as np
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError
from pipeline.evaluation.rerank import find_most_similar, rank_candidates
from pipeline.evaluation.rerank_scores import MARGIN, SIMILARITY
from saywhich.encoded_photos import EncodedPhotos, join_photos
from saywhich.photos import Photo, UndecodedPhoto, load_each
from saywhich.pragmatic_decoding import DISTRACTORS, NEEDS_AMONG, SPEAKER, PragmaticDecoding, PragmaticGallery

BEAM = 5
PreparedPhoto = TypeVar("PreparedPhoto")  # a photo as the networks' input
Features = TypeVar("Features", bound=EncodedPhotos)


@dataclass(frozen=True)
class Caption:
    """A caption of one photo; `str` returns its text.

    `candidates` begin with this caption. `rank` is the photo's retrieval rank by the listener among `of` photos; 1 is
    best. `margin` is the photo's score minus the best distractor's score, infinite without a distractor. `unlike` is
    True for a photo unlike the training images, whose caption and rank are unreliable.
    """

    text: str
    candidates: tuple[str, ...] = ()
    rank: int | None = None
    of: int | None = None
    margin: float | None = None
    unlike: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SearchHit:
    """A retrieved photo: its index among the given photos, and the listener's score in −1 … 1."""

    index: int
    score: float


@dataclass(frozen=True)
class CaptionCandidates:
    """K candidate captions of each of M photos, the most likely first where they come from a beam.

    `encode` returns the listener's embeddings (M, K, H).
    """

    texts: Sequence[Sequence[str]]
    encode: Callable[[], Tensor]


@dataclass(frozen=True)
class CandidateSettings(Generic[Features]):
    """Settings of candidate captions: sampled captions, all captions of a beam, or the best of a beam alone."""

    beam: int
    samples: int | None  # number of sampled captions; None: beam search
    rerank: bool  # whether the listener chooses among captions of plain decoding; a beam then gives all of its captions
    seed: int
    temperature: float | None  # divides the logits of samples; None: the default of the model
    pragmatic: PragmaticGallery[Features] | None  # None: plain decoding


class CaptioningModel(ABC, Generic[PreparedPhoto, Features]):
    """A speaker and a listener. Images are paths, Pillow images or uint8 arrays (H, W, 3).

    A single image counts as a list of one. Subclasses read photos, generate candidates and encode texts; this class
    ranks candidates and searches photos.
    """

    photos_at_once: ClassVar[int]  # photos prepared and encoded in one batch

    @abstractmethod
    def prepare(self, photo: Photo) -> PreparedPhoto:
        """Return the networks' input for a photo; called in threads. Raises UserError for an unreadable photo."""

    @abstractmethod
    def encode_prepared(self, prepared: Sequence[PreparedPhoto]) -> Features:
        """Extract the features of M images that `prepare` returned."""

    @abstractmethod
    def make_empty_features(self) -> Features:
        """Return the features of zero photos."""

    @abstractmethod
    def require_listener(self) -> object:
        """Raise UserError where the model has no listener that encodes photos."""

    @abstractmethod
    def encode_text(self, captions: Sequence[str]) -> Tensor:
        """Return the listener's embeddings (N, H) of length 1 of N captions; one text counts as a list of one."""

    @abstractmethod
    def generate_candidates(self, features: Features, settings: CandidateSettings[Features]) -> CaptionCandidates:
        """Generate candidate captions of one or more photos."""

    def caption(
        self,
        images: Sequence[Photo] | Photo,
        *,
        beam: int = BEAM,
        samples: int | None = None,
        among: Sequence[Photo] | Photo | None = None,
        pragmatic: float | None = None,
        distractors: int = DISTRACTORS,
        posterior: str = SPEAKER,
        score: str = MARGIN,
        seed: int = 0,
        temperature: float | None = None,
    ) -> list[Caption]:
        """Generate a caption for each of M images: the best of a beam, or the first of `samples` sampled captions.

        `among` are N distractors; the beam's captions or the samples are then candidates. The listener ranks the image
        among the distractors by each candidate, and the candidate with the largest margin is returned. A distractor
        identical to the image does not count. With the `score` "similarity", the candidate with the highest similarity
        to the image is returned, with or without distractors. The samples of an image depend on `seed`, and not on the
        other `images`. `temperature` divides their logits. Its default is .3 where the listener chooses among samples
        of a trained model without `pragmatic`. Otherwise it is 1, or the setting of a pretrained model.

        With `pragmatic`, the weight α, each word is chosen to distinguish the image from the nearest `distractors` of
        `among`. Without `samples` the best of the beam is then the only candidate. `posterior` gives the posterior over
        these images: "speaker" (by Bayes' rule) or "listener".

        Raises UserError for an invalid setting, `pragmatic` without `among`, a missing listener, and an image that
        cannot be read.

        >>> caption = model.caption(["a.jpg"], samples=20, among=["a.jpg", "b.jpg", "c.jpg"])[0]
        >>> 1 <= caption.rank <= caption.of == 3
        True
        """
        _check_settings(beam, samples, score, temperature)
        decoding = None if pragmatic is None else PragmaticDecoding(pragmatic, distractors, posterior)
        if decoding is not None and among is None:
            raise UserError(NEEDS_AMONG)
        if among is not None or score == SIMILARITY:
            self.require_listener()
        gallery_features = None if among is None else self.extract_features(among)
        gallery = None
        if decoding is not None and gallery_features is not None:
            gallery = PragmaticGallery(decoding, gallery_features, gallery_features.select)
        features = self.extract_features(images)
        return self.caption_features(
            features,
            beam=beam,
            samples=samples,
            among=gallery_features,
            seed=seed,
            pragmatic=gallery,
            score=score,
            temperature=temperature,
        )

    def caption_features(
        self,
        features: Features,
        *,
        beam: int = BEAM,
        samples: int | None = None,
        among: EncodedPhotos | None = None,
        seed: int = 0,
        pragmatic: PragmaticGallery[Features] | None = None,
        score: str = MARGIN,
        temperature: float | None = None,
    ) -> list[Caption]:
        """Generate captions as `caption` does, from extracted features; with `pragmatic`, by pragmatic decoding.

        Raises UserError for a `beam` or `samples` below 1, an unknown `score`, and a `temperature` that is no finite
        number of 1e-6 or more.
        """
        _check_settings(beam, samples, score, temperature)
        if not len(features):
            return []
        ranked = (among is not None or score == SIMILARITY) and pragmatic is None
        candidates = self.generate_candidates(
            features, CandidateSettings(beam, samples, ranked, seed, temperature, pragmatic)
        )
        if among is None and score == MARGIN:
            rows = zip(candidates.texts, features.unlike, strict=True)
            return [Caption(texts[0], tuple(texts), unlike=unlike) for texts, unlike in rows]
        return rank_captions(candidates, features, among, score)

    def score(self, captions: Sequence[str], images: Sequence[Photo] | Photo) -> np.ndarray:
        """Return the listener's scores (N, M) float32 of N captions and M images, cosines in −1 … 1.

        Raises UserError for a missing listener, and for an image that cannot be read.

        >>> model.score(["a dog", "two boats"], ["a.jpg", "b.jpg", "c.jpg"]).shape
        (2, 3)
        """
        return (self.encode_text(captions) @ self.extract_features(images).vectors.T).numpy()

    def find(self, text: str, images: Sequence[Photo] | Photo, top: int | None = 10) -> list[SearchHit]:
        """Return the `top` of M images that score highest with `text`, best first; None returns all.

        Raises UserError for a `top` below 1, a missing listener, and an image that cannot be read.

        >>> hits = model.find("two boats", ["a.jpg", "b.jpg", "c.jpg"], top=2)
        >>> len(hits), hits[0].score >= hits[1].score
        (2, True)
        """
        require_positive(top=top)
        return find_best_matches(self.encode_text([text])[0], self.extract_features(images).vectors, top)

    def extract_features(self, images: Sequence[Photo] | Photo) -> Features:
        """Extract the features of M images; raises UserError for the first unreadable image."""
        batches = load_each(as_sequence(images), self.prepare, self.photos_at_once)
        parts = [self.encode_prepared(prepared) for prepared in batches]
        return join_photos(parts) if parts else self.make_empty_features()


def rank_captions(
    candidates: CaptionCandidates, photos: EncodedPhotos, among: EncodedPhotos | None, score: str = MARGIN
) -> list[Caption]:
    """Return the best of K candidate captions for each of M photos, by the listener's margin over the distractors.

    Distractors in `among` with the digest of the photo do not count. With the `score` "similarity", and where no
    distractor is left, the best caption is the caption most similar to the photo. With that score, `among` only
    determines rank and margin, and may be None.
    """
    vectors, distractors = candidates.encode(), photos.select([]) if among is None else among
    identical = distractors.find_copies(photos.contents)
    ranking = rank_candidates(vectors, photos.vectors, distractors.vectors, identical)
    most_similar_index, has_no_distractor = find_most_similar(vectors, photos.vectors), identical.all(1)
    best_index = (
        most_similar_index if score == SIMILARITY else most_similar_index.where(has_no_distractor, ranking.best)
    )
    captions = []
    for row, best in enumerate(best_index.tolist()):
        texts = candidates.texts[row]
        caption = Caption(texts[best], (texts[best], *texts[:best], *texts[best + 1 :]), unlike=photos.unlike[row])
        if among is not None:
            rank, margin = int(ranking.ranks[row, best]), float(ranking.margins[row, best])
            caption = replace(caption, rank=rank, of=1 + int((~identical[row]).sum()), margin=margin)
        captions.append(caption)
    return captions


def require_temperature(temperature: float | None) -> None:
    """Raise UserError for a temperature below 1e-6, for infinity and for NaN."""
    if temperature is not None and not 1e-6 <= temperature < math.inf:
        raise UserError(f"temperature {temperature:g}: give a finite number of 0.000001 or more")


def require_positive(**numbers: int | None) -> None:
    """Raise UserError for a number below 1; None is allowed."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UserError(f"{name.replace('_', '-')} {number}: give 1 or more")


def as_sequence(images: Sequence[Photo] | Photo) -> Sequence[Photo]:
    """Return images as a sequence, one image as a sequence of one; an array (M, H, W, 3) holds M images."""
    if isinstance(images, np.ndarray):
        return list(images) if images.ndim == 4 else [images]
    return [images] if isinstance(images, str | Path | Image.Image | UndecodedPhoto) else images


def find_best_matches(text: Tensor, vectors: Tensor, top: int | None) -> list[SearchHit]:
    """Return the `top` of M images with embeddings (M, H) for one text embedding (H,); ties keep their order."""
    scores = vectors @ text
    order = scores.argsort(descending=True, stable=True)[:top]
    return [SearchHit(int(index), float(scores[index])) for index in order]


def _check_settings(beam: int, samples: int | None, score: str, temperature: float | None) -> None:
    if score not in (MARGIN, SIMILARITY):
        raise UserError(f"score {score!r}: give {MARGIN} or {SIMILARITY}")
    require_positive(beam=beam, samples=samples)
    require_temperature(temperature)
