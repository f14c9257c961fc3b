"""A trained speaker, its own listener and their feature extractor, applied to photos."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from pipeline.channels.hard import BanToken, Beam, Multinomial
from pipeline.data.corpus import tokenise
from pipeline.errors import UserError
from pipeline.evaluation.judges import JudgedCaptions, ListenerJudge, judged_captions
from pipeline.evaluation.pragmatic_captions import with_distractors
from pipeline.evaluation.rerank import rank_candidates
from pipeline.features.extractor import ImageFeatures
from pipeline.features.film_extractor import open_film
from pipeline.models.decoder import Decoder
from pipeline.models.inference import optimize_for_decoding
from pipeline.models.listener import Listener
from pipeline.models.pragmatic_decoder import DistractorBatches, PragmaticDecoder, TokenAwareDecoder
from pipeline.models.retrieval_pragmatics import RetrievalPragmaticDecoder
from pipeline.models.unroll import generate
from pipeline.protocols import Channel
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary
from saywhich.feature_extractor import FeatureExtractor
from saywhich.model_files import MAIN, ModelFiles
from saywhich.photos import UNLIKE, Photo, UndecodedPhoto, content_digest, load_in_threads, open_photo
from saywhich.pragmatic_decoding import DISTRACTORS, LISTENER, NEEDS_AMONG, SPEAKER, PragmaticDecoding, PragmaticGallery

AT_ONCE = 32  # photos in one batch of the network
BEAM = 5


@dataclass(frozen=True)
class Caption:
    """A caption of one photo; `str` returns its text.

    `candidates` begin with the selected caption where they were ranked. `rank` is the photo's retrieval rank by the
    listener among `of` photos, 1 the best. `margin` is its score minus the best distractor's score. `unlike`: the photo
    is unlike the training images, so that caption and rank mean little.
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
class PhotoFeatures:
    """Features of M photos under one model."""

    pooled: Tensor  # (M, P), the listener's input
    regions: Tensor  # (M, R, D), the regions that the speaker attends to
    mask: Tensor  # (M, R) bool: True for regions that exist
    boxes: Tensor | None  # (M, R, 4) as shares of width and height, for detected regions
    vectors: Tensor  # (M, H) of length 1: the listener's image embeddings; zeros if it encodes other features
    contents: tuple[str, ...]  # digests of the prepared images

    def __len__(self) -> int:
        return len(self.contents)

    @property
    def unlike(self) -> tuple[bool, ...]:
        """Return for each photo whether it is unlike the training images."""
        return tuple(content.endswith(UNLIKE) for content in self.contents)

    def split(self, size: int) -> Iterator[PhotoFeatures]:
        """Split the features into parts of at most `size` photos."""
        for first in range(0, len(self), size):
            some = slice(first, first + size)
            tensors = {name: getattr(self, name)[some] for name in ("pooled", "regions", "mask", "vectors", "contents")}
            yield PhotoFeatures(**tensors, boxes=None if self.boxes is None else self.boxes[some])

    def select(self, rows: Sequence[int]) -> PhotoFeatures:
        """Return the features of the photos `rows`, in that order."""
        tensors = {name: getattr(self, name)[list(rows)] for name in ("pooled", "regions", "mask", "vectors")}
        boxes = None if self.boxes is None else self.boxes[list(rows)]
        return PhotoFeatures(**tensors, boxes=boxes, contents=tuple(self.contents[row] for row in rows))


@dataclass(frozen=True)
class Distractors:
    """N distractors: the listener's image embeddings (N, H) and the digests of the prepared images."""

    vectors: Tensor
    contents: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.contents)


@dataclass(frozen=True, repr=False)
class Model:
    """A speaker, its own listener and their feature extractor, on the CPU or an accelerator.

    Images are paths, Pillow images, or uint8 arrays (H, W, 3); one image counts as a list of one. A model of films also
    takes paths of films; an image counts as a film without motion.
    """

    speaker: Decoder
    listener: Listener
    feature_extractor: FeatureExtractor
    vocabulary: Vocabulary
    place: ModelFiles
    device: torch.device

    def __repr__(self) -> str:
        """Return the folder, the classes of the networks, and the size of the vocabulary, in one line."""
        networks = f"{type(self.speaker).__name__}, {type(self.listener).__name__}"
        return f"<Model of {self.place.folder}: {networks}, {len(self.vocabulary):,} words, on {self.device}>"

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
        seed: int = 0,
    ) -> list[Caption]:
        """Generate a caption for each of M images: the best of a beam, or the first of `samples` sampled captions.

        `among` are N distractors; the beam's captions or the samples are then candidates. The listener ranks the image
        among the distractors by each candidate, and the best candidate is returned. A distractor identical to the image
        does not count. The samples of an image depend only on the image and on `seed`.

        With the weight α `pragmatic`, each word is chosen to tell the image from the nearest `distractors` of `among`.
        The best of the beam is then the only candidate. `posterior`: whose posterior over these images weighs the
        words, "speaker" (by Bayes' rule) or "listener".

        >>> caption = model.caption(["a.jpg"], samples=20, among=["a.jpg", "b.jpg", "c.jpg"])[0]
        >>> 1 <= caption.rank <= caption.of == 3
        True
        """
        sight = self.extract_features(images)
        if pragmatic is not None:
            gallery = self.pragmatic_gallery(PragmaticDecoding(pragmatic, distractors, posterior), among)
            options: dict[str, Any] = {"among": gallery.among, "pragmatic": gallery}
        else:
            options = {"among": None if among is None else self.distractors(among)}
        return self.caption_features(sight, beam=beam, samples=samples, seed=seed, **options)

    def score(self, captions: Sequence[str], images: Sequence[Photo] | Photo) -> np.ndarray:
        """Return the listener's scores (N, M) float32 of N captions and M images, cosines in −1 … 1.

        >>> model.score(["a dog", "two boats"], ["a.jpg", "b.jpg", "c.jpg"]).shape
        (2, 3)
        """
        return (self.encode_text(captions) @ self.extract_features(images).vectors.T).numpy()

    def find(self, text: str, images: Sequence[Photo] | Photo, top: int | None = 10) -> list[SearchHit]:
        """Return the `top` of M images that score highest with `text`, best first; None returns all.

        >>> found = model.find("two boats", ["a.jpg", "b.jpg", "c.jpg"], top=2)
        >>> len(found), found[0].score >= found[1].score
        (2, True)
        """
        return best_matches(self.encode_text([text])[0], self.extract_features(images).vectors, top)

    def extract_features(self, images: Sequence[Photo] | Photo) -> PhotoFeatures:
        """Extract the features of M images; raises UserError for the first that cannot be read."""
        parts = []
        for part in load_in_threads(listed(images), self.prepare, AT_ONCE):
            for _, tensor in part:
                if isinstance(tensor, UserError):
                    raise tensor
            parts.append(self.features_of([tensor for _, tensor in part if isinstance(tensor, Tensor)]))
        return join_features(parts) if parts else self._nothing()

    def prepare(self, photo: Photo) -> Tensor:
        """Prepare a photo as the network's input (3, S, S), or the frames (F, 3, S, S) of a film.

        Raises as `open_photo` does.
        """
        if self.feature_extractor.frames is None or not isinstance(photo, str | Path):
            with open_photo(photo, self.feature_extractor.bytes_per_pixel) as image:
                return self.feature_extractor.prepare(image)
        try:
            return self.feature_extractor.prepare(
                open_film(Path(photo), self.feature_extractor.frames, self.feature_extractor.manifest.get("rate"))
            )
        except FileNotFoundError:
            raise UserError(f"{photo}: no such photo") from None

    def distractors(self, images: Sequence[Photo] | Photo) -> Distractors:
        """Encode N images as distractors. Raises UserError as `require_listener` does."""
        self.require_listener()
        seen = self.extract_features(images)
        return Distractors(seen.vectors, seen.contents)

    def pragmatic_gallery(
        self, decoding: PragmaticDecoding, among: Sequence[Photo] | Photo | None
    ) -> PragmaticGallery[PhotoFeatures]:
        """Encode the images among which distractors are found; raises UserError where there are none."""
        if among is None:
            raise UserError(NEEDS_AMONG)
        return self.gallery_of(decoding, self.extract_features(among))

    def gallery_of(self, decoding: PragmaticDecoding, seen: PhotoFeatures) -> PragmaticGallery[PhotoFeatures]:
        """Return the photos `seen` as those among which distractors are found."""
        self.require_listener()
        return PragmaticGallery(decoding, Distractors(seen.vectors, seen.contents), seen.select)

    def features_of(self, prepared: Sequence[Tensor]) -> PhotoFeatures:
        """Extract the features of M images that `prepare` returned."""
        seen = self.feature_extractor(prepared)
        mirrored = self.feature_extractor(prepared, mirrored=True) if self.feature_extractor.mirrored else None
        judge = self._judge(seen, mirrored)
        mask = torch.arange(seen.regions.shape[1]) < seen.region_count.unsqueeze(1)
        vectors = torch.zeros(len(prepared), self.listener.image.out_features)
        if self.listener.features == MAIN:
            vectors = judge.encode_image(torch.arange(len(prepared))).cpu()
        contents = tuple(content_digest(tensor, self.feature_extractor.is_unlike(tensor)) for tensor in prepared)
        return PhotoFeatures(seen.pooled, seen.regions, mask, seen.boxes, vectors, contents)

    def require_listener(self) -> None:
        """Raise UserError where the listener encodes features that are not extracted from photos here."""
        if self.listener.features != MAIN:
            raise UserError(
                f"{self.place.weights}: its listener encodes the features {self.listener.features!r}, and photos are "
                f"encoded as {MAIN!r} alone: caption without among, or train with pretrain.listener.features: {MAIN}"
            )

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        """Return the listener's embeddings (N, H) of N captions, each of length 1; one text counts as a list of one."""
        self.require_listener()
        vocabulary, captions = self.vocabulary, [captions] if isinstance(captions, str) else captions
        texts = [text if vocabulary.reads_text else " ".join(tokenise(text)) for text in captions]
        return self._judge().encode_text(judged_captions(texts, vocabulary, self.speaker.max_words)).cpu()

    @torch.no_grad()
    def caption_features(
        self,
        sight: PhotoFeatures,
        *,
        beam: int = BEAM,
        samples: int | None = None,
        among: Distractors | None = None,
        seed: int = 0,
        pragmatic: PragmaticGallery[PhotoFeatures] | None = None,
    ) -> list[Caption]:
        """Generate captions as `caption` does, from extracted features; with `pragmatic`, by pragmatic decoding.

        Raises UserError where `beam` or `samples` is below 1.
        """
        if min(beam, 1 if samples is None else samples) < 1:
            raise UserError(f"beam {beam}, samples {samples}: give 1 or more")
        if not len(sight):
            return []
        channel: Channel = Beam(beam, 1 if among is None or pragmatic is not None else beam)
        if samples is not None:
            channel = Multinomial(samples, requires_grad=False)
        # one image at a time, so that samples depend on no other image
        parts = sight.split(AT_ONCE if samples is None else 1)
        tokens = torch.cat([self._spoken(part, channel, seed, pragmatic) for part in parts])
        texts = [[self.vocabulary.decode(row) for row in rows] for rows in tokens.tolist()]
        if among is None:
            return [Caption(said[0], tuple(said), unlike=odd) for said, odd in zip(texts, sight.unlike, strict=True)]
        flat = JudgedCaptions(tokens.flatten(0, 1), [text for said in texts for text in said])
        heard = self._judge().encode_text(flat).cpu().unflatten(0, tokens.shape[:2])
        return ranked_captions(texts, heard, sight.vectors, sight.contents, among)

    def _spoken(
        self,
        sight: PhotoFeatures,
        channel: Channel,
        seed: int,
        pragmatic: PragmaticGallery[PhotoFeatures] | None,
    ) -> Tensor:
        """Generate captions (M, K, T) through `channel`, with the token UNK banned."""
        channel = BanToken(channel, self.vocabulary.unk) if self.vocabulary.unk >= 0 else channel
        drawn = int(hashlib.sha256(f"{seed} {sight.contents[0]}".encode()).hexdigest()[:15], 16)
        rng = torch.Generator(self.device).manual_seed(drawn)
        speaker = optimize_for_decoding(self.speaker.to(self.device).eval())
        if pragmatic is not None:
            speaker = self._pragmatic(speaker, sight, pragmatic)
        tokens = generate(speaker, batch_of(sight).to(self.device), channel, rng).tokens.cpu()
        return pad(tokens, (0, speaker.max_words - tokens.shape[1])).unflatten(0, (len(sight), -1))

    def _pragmatic(
        self, speaker: Decoder, sight: PhotoFeatures, gallery: PragmaticGallery[PhotoFeatures]
    ) -> TokenAwareDecoder:
        """Return the pragmatic speaker of these M images, whose distractors `gallery` finds."""
        nearest = gallery.nearest(sight.vectors, sight.contents)  # (M, K)
        if gallery.decoding.posterior == LISTENER:
            images = with_distractors(gallery.among.vectors, sight.vectors, nearest)
            return RetrievalPragmaticDecoder(speaker, gallery.decoding.alpha, lambda _: images, self._encode_tokens)
        rows, place = nearest.clamp_min(0).unique(return_inverse=True)
        read = gallery.read(rows.tolist()) if len(rows) else self._nothing()
        batches = [batch_of(read.select(column.tolist())).to(self.device) for column in place.T]
        distractors = DistractorBatches(batches, nearest >= 0)
        return PragmaticDecoder(speaker, gallery.decoding.alpha, lambda _: distractors)

    def _encode_tokens(self, tokens: Tensor) -> Tensor:
        """Return the listener's embeddings (N, H) of captions (N, T)."""
        texts = [self.vocabulary.decode(row) for row in tokens.tolist()]
        return self._judge().encode_text(JudgedCaptions(tokens, texts))

    def _judge(self, seen: ImageFeatures | None = None, mirrored: ImageFeatures | None = None) -> ListenerJudge:
        def of(these: ImageFeatures | None) -> Any:
            return None if these is None else lambda rows: these.pooled[rows]

        return ListenerJudge(self.listener, of(seen), self.device, of(mirrored))

    def _nothing(self) -> PhotoFeatures:
        """Return the features of zero photos."""
        regions = torch.zeros(0, *self.feature_extractor.network.regions_shape)
        empty = torch.zeros(0, self.feature_extractor.network.pooled_size)
        vectors = torch.zeros(0, self.listener.image.out_features)
        return PhotoFeatures(empty, regions, regions.any(2), None, vectors, ())


def ranked_captions(
    texts: Sequence[Sequence[str]], heard: Tensor, vectors: Tensor, contents: Sequence[str], among: Distractors
) -> list[Caption]:
    """Return for each of M photos its best caption of K candidates, by the listener's margin over the distractors.

    `heard` (M, K, H) are the listener's embeddings of the candidates `texts`; `vectors` (M, H) are those of the photos,
    and `contents` the digests of the prepared photos. Distractors with the digest of the photo do not count.
    """
    same = torch.tensor([[mine == other for other in among.contents] for mine in contents])
    chosen = rank_candidates(heard, vectors, among.vectors, same.view(len(contents), len(among)))
    captions = []
    for row, (said, which) in enumerate(zip(texts, chosen.best.tolist(), strict=True)):
        candidates = (said[which], *said[:which], *said[which + 1 :])
        rank, margin = int(chosen.ranks[row, which]), float(chosen.margins[row, which])
        of = 1 + int((~same[row]).sum()) if len(among) else 1
        captions.append(Caption(said[which], candidates, rank, of, margin, contents[row].endswith(UNLIKE)))
    return captions


def listed(images: Sequence[Photo] | Photo) -> Sequence[Photo]:
    """Return images as a sequence, one image as a sequence of one; an array (M, H, W, 3) holds M images."""
    if isinstance(images, np.ndarray):
        return list(images) if images.ndim == 4 else [images]
    return [images] if isinstance(images, str | Path | Image.Image | UndecodedPhoto) else images


def batch_of(sight: PhotoFeatures, tokens: Tensor | None = None) -> Batch:
    """Return M photos as a batch, with captions (M, T) if given."""
    captions = torch.zeros(len(sight), 1, dtype=torch.int64) if tokens is None else tokens
    return Batch(torch.arange(len(sight)), sight.pooled, sight.regions, sight.mask, captions)


def join_features(parts: Sequence[PhotoFeatures]) -> PhotoFeatures:
    """Join the features of several batches of photos."""
    boxes = [part.boxes for part in parts if part.boxes is not None]
    tensors = {name: torch.cat([getattr(part, name) for part in parts]) for name in ("pooled", "regions", "mask")}
    vectors, contents = torch.cat([part.vectors for part in parts]), tuple(c for part in parts for c in part.contents)
    return PhotoFeatures(**tensors, boxes=torch.cat(boxes) if boxes else None, vectors=vectors, contents=contents)


def best_matches(heard: Tensor, vectors: Tensor, top: int | None) -> list[SearchHit]:
    """Return the `top` of M images with embeddings (M, H) for one text embedding (H,); ties keep their order."""
    scores = vectors @ heard
    order = scores.argsort(descending=True, stable=True)[:top]
    return [SearchHit(int(index), float(scores[index])) for index in order]
