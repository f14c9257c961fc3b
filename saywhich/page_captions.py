"""Captions of uploaded photos, with the listener's ranking and the speaker's attention, and photo search by text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pipeline.data.corpus import tokenise
from saywhich.attention import compute_caption_attention
from saywhich.captioning_model import CaptioningModel, find_best_matches
from saywhich.encoded_photos import EncodedPhotos
from saywhich.model import Model, PhotoFeatures, make_batch
from saywhich.pragmatic_decoding import PragmaticDecoding, PragmaticGallery
from saywhich.request_bodies import CaptionRequest, FindResponse, ModelCaption, PhotoHit
from saywhich.request_queue import Check

ServedModel = CaptioningModel[Any, Any]
BATCH = 8  # photos per batch; between batches, `check` ends abandoned work


def caption_photos(
    name: str,
    model: ServedModel,
    features: EncodedPhotos,
    query: CaptionRequest,
    check: Check = object,
    batch: int = BATCH,
) -> list[ModelCaption]:
    """Return one model's caption of each photo, generated in batches of `batch` photos.

    With `query.among`, where photos are distinguished, a batch has one photo. `check` raises to end abandoned work.
    """
    result: list[ModelCaption] = []
    for part in features.split(1 if query.among else batch):
        check()
        result += _caption_batch(name, model, part, features, query, first=len(result))
    return result


def find_photos(model: ServedModel, features: EncodedPhotos, text: str) -> FindResponse:
    """Return the photos by the listener's scores with `text`, best first, and the words outside the vocabulary.

    The response also lists the photos unlike the training images.
    """
    matches = find_best_matches(model.encode_text([text])[0], features.vectors, None)
    vocabulary = model.vocabulary if isinstance(model, Model) and not model.vocabulary.encodes_text else None
    unknown = [] if vocabulary is None else [word for word in tokenise(text) if word not in vocabulary.ids]
    hits = [PhotoHit(photo=match.index, score=match.score) for match in matches]
    return FindResponse(found=hits, unknown=unknown, unlike=[n for n, unlike in enumerate(features.unlike) if unlike])


def _caption_batch(
    name: str,
    model: ServedModel,
    part: EncodedPhotos,
    features: EncodedPhotos,
    query: CaptionRequest,
    first: int,
) -> list[ModelCaption]:
    """Return one model's captions of the photos `part`, whose first photo has the index `first` in `features`."""
    options: dict[str, Any] = {"beam": query.beam}
    if query.uses_sampling:
        options = {"samples": query.samples, "temperature": query.temperature}
    if query.pragmatic is not None:
        gallery = PragmaticGallery(PragmaticDecoding(query.pragmatic), features, features.select)
        options = {"beam": query.beam, "pragmatic": gallery}
    captions = model.caption_features(part, among=features if query.among else None, score=query.score, **options)
    texts = [caption.text for caption in captions]
    words = [text.split() for text in texts]
    attention = (
        _compute_attention(model, part, words) if isinstance(model, Model) and isinstance(part, PhotoFeatures) else None
    )
    scores = model.encode_text(texts) @ features.vectors.T
    is_distractor = ~features.find_copies(part.contents)  # a photo that was uploaded twice is no distractor of itself
    result = []
    for i, (text, caption_words) in enumerate(zip(texts, words, strict=True)):
        order = scores[i].argsort(descending=True, stable=True).tolist()
        rank = 1 + int((is_distractor[i] & (scores[i] >= scores[i, first + i])).sum())
        rows = (
            None
            if attention is None
            else [[round(x, 4) for x in row] for row in attention[i, : len(caption_words)].tolist()]
        )
        boxes = None if part.boxes is None else part.boxes[i].tolist()
        result.append(
            ModelCaption(
                model=name,
                caption=text,
                words=caption_words,
                rank=rank,
                retrieved=order,
                attention=rows,
                boxes=boxes,
                unlike=part.unlike[i],
            )
        )
    return result


def _compute_attention(model: Model, part: PhotoFeatures, words: Sequence[Sequence[str]]) -> torch.Tensor | None:
    """Return the attention (M, T, R) of each word to the regions; None if there is no distribution per word.

    With films, the R regions are those of one frame.
    """
    if model.vocabulary.encodes_text:
        return None
    tokens = torch.zeros(len(words), model.speaker.max_words, dtype=torch.int64)
    for row, caption_words in zip(tokens, words, strict=True):
        row[: len(caption_words)] = torch.tensor(model.vocabulary.encode(caption_words))
    attention = compute_caption_attention(model.speaker.cpu(), make_batch(part, tokens))
    if attention is not None and model.feature_extractor.frames is not None and part.boxes is None:
        return attention.unflatten(2, (model.feature_extractor.frames, -1)).sum(2)  # a photo is a film of equal frames
    return attention
