"""A trained speaker, its own listener and their feature extractor, applied to photos."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.channels.hard import BanToken, Beam, Multinomial, TemperatureScaling
from pipeline.data.corpus import tokenise
from pipeline.errors import UserError
from pipeline.evaluation.judges import JudgedCaptions, ListenerJudge, encode_judged_captions
from pipeline.evaluation.pragmatic_captions import stack_distractors
from pipeline.features.extractor import ImageFeatures
from pipeline.features.film_extractor import open_film
from pipeline.models.decoder import Decoder
from pipeline.models.inference import optimise_for_decoding
from pipeline.models.listener import Listener
from pipeline.models.pragmatic_decoder import DistractorBatches, PragmaticDecoder, TokenAwareDecoder
from pipeline.models.retrieval_pragmatics import TEMPERATURE, RetrievalPragmaticDecoder
from pipeline.models.unroll import generate
from pipeline.protocols import Channel
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary
from saywhich.captioning_model import CandidateSettings, CaptionCandidates, CaptioningModel
from saywhich.encoded_photos import EncodedPhotos
from saywhich.feature_extractor import FeatureExtractor
from saywhich.model_files import MAIN, ModelFiles
from saywhich.photos import Photo, compute_content_digest, open_photo
from saywhich.pragmatic_decoding import LISTENER, PragmaticGallery, TextListener

BATCH = 32  # photos in one batch of the network
RERANK_TEMPERATURE = 0.3  # at 1, re-ranked samples have half the beam's CIDEr on photos


@dataclass(frozen=True, kw_only=True)
class PhotoFeatures(EncodedPhotos):
    """Features of M photos under one model."""

    pooled: Tensor  # (M, P), the listener's input
    regions: Tensor  # (M, R, D), the regions that the speaker attends to
    mask: Tensor  # (M, R) bool: True for regions that exist


@dataclass(frozen=True, repr=False)
class Model(CaptioningModel[Tensor, PhotoFeatures]):
    """A speaker, its own listener and their feature extractor, on the CPU or an accelerator.

    A model of films also takes paths of films; an image counts as a film without motion.
    """

    photos_at_once = BATCH

    speaker: Decoder
    listener: Listener
    feature_extractor: FeatureExtractor
    vocabulary: Vocabulary
    files: ModelFiles
    device: torch.device

    def __repr__(self) -> str:
        """Return the folder, the classes of the networks, the size of the vocabulary and the device, in one line."""
        networks = f"{type(self.speaker).__name__}, {type(self.listener).__name__}"
        return f"<Model of {self.files.folder}: {networks}, {len(self.vocabulary):,} words, on {self.device}>"

    def prepare(self, photo: Photo) -> Tensor:
        """Prepare a photo as the network's input (3, H, W), or the frames (F, 3, H, W) of a film.

        Raises UserError where the photo or the film cannot be read.
        """
        if self.feature_extractor.frames is None or not isinstance(photo, str | Path):
            with open_photo(photo, self.feature_extractor.bytes_per_pixel) as image:
                return self.feature_extractor.prepare(image)
        try:
            return self.feature_extractor.prepare(
                open_film(Path(photo), self.feature_extractor.frames, self.feature_extractor.manifest.get("rate"))
            )
        except FileNotFoundError:
            raise UserError(f"{photo}: no such photo or film; correct its path") from None

    def encode_prepared(self, prepared: Sequence[Tensor]) -> PhotoFeatures:
        """Extract the features of prepared photos, and of their mirror images where the extractor uses them."""
        features = self.feature_extractor(prepared)
        mirrored = self.feature_extractor(prepared, mirrored=True) if self.feature_extractor.mirrored else None
        judge = self._make_judge(features, mirrored)
        mask = torch.arange(features.regions.shape[1]) < features.region_count.unsqueeze(1)
        vectors = torch.zeros(len(prepared), self.listener.image.out_features)
        if self.listener.features == MAIN:
            vectors = judge.encode_image(torch.arange(len(prepared))).cpu()
        is_out_of_distribution = self.feature_extractor.is_out_of_distribution
        contents = tuple(compute_content_digest(tensor, is_out_of_distribution(tensor)) for tensor in prepared)
        return PhotoFeatures(
            vectors, contents, features.boxes, pooled=features.pooled, regions=features.regions, mask=mask
        )

    def require_listener(self) -> None:
        """Raise UserError where the listener encodes features that are not extracted from photos here."""
        if self.listener.features != MAIN:
            raise UserError(
                f"{self.files.weights}: its listener encodes the features {self.listener.features!r}, and photos are "
                f"encoded as {MAIN!r} alone: give a pretrained listener (--listener), or train with "
                f"pretrain.listener.features: {MAIN}"
            )

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        """Return the listener's embeddings (N, H) of length 1 of N captions; one text counts as a list of one.

        Raises UserError as `require_listener` does.
        """
        self.require_listener()
        vocabulary, captions = self.vocabulary, [captions] if isinstance(captions, str) else captions
        if not len(captions):
            return torch.zeros(0, self.listener.image.out_features)
        texts = [text if vocabulary.encodes_text else " ".join(tokenise(text)) for text in captions]
        return self._make_judge().encode_text(encode_judged_captions(texts, vocabulary, self.speaker.max_words)).cpu()

    @torch.no_grad()
    def generate_candidates(
        self, features: PhotoFeatures, settings: CandidateSettings[PhotoFeatures]
    ) -> CaptionCandidates:
        """Generate candidate captions of one or more photos, with the token UNK banned."""
        channel: Channel = Beam(settings.beam, settings.beam if settings.rerank else 1)
        if settings.samples is not None:
            channel = Multinomial(settings.samples, requires_grad=False)
            default = RERANK_TEMPERATURE if settings.rerank else 1.0
            temperature = default if settings.temperature is None else settings.temperature
            channel = channel if temperature == 1 else TemperatureScaling(channel, temperature)
        # one image at a time, so that samples depend on no other image
        parts = features.split(BATCH if settings.samples is None else 1)
        tokens = torch.cat([self._generate(part, channel, settings) for part in parts])  # (M, K, T)
        texts = [[self.vocabulary.decode(row) for row in rows] for rows in tokens.tolist()]
        judged_captions = JudgedCaptions(tokens.flatten(0, 1), [text for rows in texts for text in rows])
        return CaptionCandidates(
            texts, lambda: self._make_judge().encode_text(judged_captions).cpu().unflatten(0, tokens.shape[:2])
        )

    def _generate(
        self, features: PhotoFeatures, channel: Channel, settings: CandidateSettings[PhotoFeatures]
    ) -> Tensor:
        """Generate captions (M, K, T) through `channel`, with the token UNK banned."""
        channel = BanToken(channel, self.vocabulary.unk) if self.vocabulary.unk >= 0 else channel
        photo_seed = int(hashlib.sha256(f"{settings.seed} {features.contents[0]}".encode()).hexdigest()[:15], 16)
        rng = torch.Generator(self.device).manual_seed(photo_seed)
        speaker = optimise_for_decoding(self.speaker.to(self.device).eval())
        if settings.pragmatic is not None:
            speaker = self._make_pragmatic_speaker(speaker, features, settings.pragmatic)
        tokens = generate(speaker, make_batch(features).to(self.device), channel, rng).tokens.cpu()
        return pad(tokens, (0, speaker.max_words - tokens.shape[1])).unflatten(0, (len(features), -1))

    def _make_pragmatic_speaker(
        self, speaker: Decoder, features: PhotoFeatures, gallery: PragmaticGallery[PhotoFeatures]
    ) -> TokenAwareDecoder:
        """Return the pragmatic speaker of these M images, whose distractors `gallery` finds."""
        nearest = gallery.find_nearest(features.vectors, features.contents)  # (M, K)
        if gallery.decoding.posterior == LISTENER:
            images = stack_distractors(gallery.among.vectors, features.vectors, nearest)
            listener = gallery.listener
            return RetrievalPragmaticDecoder(
                speaker,
                gallery.decoding.alpha,
                lambda _: images,
                lambda tokens: self._encode_tokens(tokens, listener),
                TEMPERATURE if listener is None else listener.temperature,
            )
        rows, indices = nearest.clamp_min(0).unique(return_inverse=True)
        distractor_features = gallery.read(rows.tolist()) if len(rows) else self.make_empty_features()
        batches = [make_batch(distractor_features.select(column.tolist())).to(self.device) for column in indices.T]
        distractors = DistractorBatches(batches, nearest >= 0)
        return PragmaticDecoder(speaker, gallery.decoding.alpha, lambda _: distractors)

    def _encode_tokens(self, tokens: Tensor, listener: TextListener | None) -> Tensor:
        """Return the embeddings (N, H) of captions (N, T) by `listener`; None stands for the model's own listener."""
        texts = [self.vocabulary.decode(row) for row in tokens.tolist()]
        if listener is not None:
            return listener.encode_texts(texts).to(self.device)
        return self._make_judge().encode_text(JudgedCaptions(tokens, texts))

    def _make_judge(
        self, features: ImageFeatures | None = None, mirrored: ImageFeatures | None = None
    ) -> ListenerJudge:
        def make_lookup(images: ImageFeatures | None) -> Any:
            return None if images is None else lambda rows: images.pooled[rows]

        return ListenerJudge(self.listener, make_lookup(features), self.device, make_lookup(mirrored))

    def make_empty_features(self) -> PhotoFeatures:
        regions = torch.zeros(0, *self.feature_extractor.network.regions_shape)
        empty = torch.zeros(0, self.feature_extractor.network.pooled_size)
        vectors = torch.zeros(0, self.listener.image.out_features)
        return PhotoFeatures(vectors, (), pooled=empty, regions=regions, mask=regions.any(2))


def make_batch(features: PhotoFeatures, tokens: Tensor | None = None) -> Batch:
    """Return M photos as a batch, with captions (M, T) if given."""
    captions = torch.zeros(len(features), 1, dtype=torch.int64) if tokens is None else tokens
    return Batch(torch.arange(len(features)), features.pooled, features.regions, features.mask, captions)
