"""Reward of captions with the signature of TRL's reward functions."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError
from saywhich.judging.clip_metrics import PROMPT
from saywhich.judging.judge_sources import open_judge
from saywhich.judging.photo_vectors import TEXT_BATCH, CaptionJudge
from saywhich.photos import Photo, open_photo
from saywhich.rewarding.look_alikes import LookAlikes
from saywhich.rewarding.reward_scores import compute_contrastive_reward, compute_hard_gallery_reward

CONTRASTIVE, HARD_CONTRASTIVE, CLIP_SCORE = "contrastive", "hard", "clip_score"
SCORES = (CONTRASTIVE, HARD_CONTRASTIVE, CLIP_SCORE)
CACHE_SIZE = 2**16  # photos whose embeddings are cached
PHOTOS_AT_ONCE = 32


class CaptionReward:
    """Reward function reward(prompts, completions, **columns) → list of N floats; higher is better.

    `truncated_count` counts the completions so far that are longer than the judge's input.
    """

    def __init__(
        self,
        judge: CaptionJudge | str,
        score: str,
        hard: int,
        photos: str | Path | None,
        neighbours: str,
        temperature: float,
        column: str,
    ) -> None:
        """Open the judge, and encode the folder `photos` of look-alikes, if any, for a contrastive score.

        Raises UserError for settings that do not fit, and as `open_judge` and `LookAlikes` do.
        """
        if score not in SCORES:
            raise UserError(f"reward: score {score!r} is not known; choose from {', '.join(SCORES)}")
        if hard < 2:
            raise UserError(f"reward: hard = {hard}; give 2 or more")
        if not 0 < temperature < math.inf:
            raise UserError(f"reward: temperature = {temperature}; give a finite number above 0")
        if score == HARD_CONTRASTIVE and photos is None:
            raise UserError("reward: the score 'hard' needs look-alikes; give photos=FOLDER")
        self.judge = open_judge(judge)
        self.metric = self.judge.metric
        if score == CLIP_SCORE and not self.metric:
            raise UserError(f"reward: CLIPScore is not defined for {self.judge.name}; choose contrastive or hard")
        self.score, self.hard, self.temperature, self.column = score, hard, temperature, column
        self.look_alikes = (
            None if photos is None or score == CLIP_SCORE else LookAlikes(Path(photos), self.judge, neighbours)
        )
        self.truncated_count = 0
        self.__name__ = f"saywhich_{score}"  # TRL logs rewards under this name
        self._cache: dict[Hashable, tuple[Tensor, Tensor]] = {}  # photo → its and its look-alikes' embeddings

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        """Return the reward of each completion for the photo in its row of the column `column`.

        Completions are texts, or lists of chat messages, of which the last is read. Photos are paths, Pillow images or
        arrays, alone or in a list of one. Raises UserError for other forms, where the column does not hold one
        photo per completion, and for a photo that cannot be read.
        """
        photos = columns.get(self.column)
        if not isinstance(photos, Sequence) or len(photos) != len(completions):
            column_names = ", ".join(sorted(columns)) or "none"
            raise UserError(
                f"reward: no column {self.column!r} with a photo per completion (columns: {column_names}); "
                "correct it, or name another by column=NAME"
            )
        if not completions:
            return []
        prompt = PROMPT if self.score == CLIP_SCORE else ""
        texts = [prompt + extract_completion_text(completion) for completion in completions]
        self.truncated_count += len(self.judge.find_truncated(texts))
        images, look_alikes, owners = self._encode_photos([_parse_photo(each) for each in photos])
        captions = self._encode_texts(texts)
        if self.score == CLIP_SCORE and self.metric:
            rewards = self.metric.score(captions, images[owners])
        elif self.score == HARD_CONTRASTIVE:
            rewards = compute_hard_gallery_reward(captions, images, owners, look_alikes, self.temperature)
        else:
            rewards = compute_contrastive_reward(captions, images, owners, look_alikes, self.temperature)
        return [float(reward) for reward in rewards.tolist()]

    def _encode_texts(self, texts: Sequence[str]) -> Tensor:
        distinct = sorted(set(texts))
        parts = [
            self.judge.encode_texts(distinct[n : n + TEXT_BATCH]).cpu() for n in range(0, len(distinct), TEXT_BATCH)
        ]
        row_by_text = {text: row for row, text in enumerate(distinct)}
        return torch.cat(parts)[[row_by_text[text] for text in texts]]

    def _encode_photos(self, photos: Sequence[Photo]) -> tuple[Tensor, Tensor, Tensor]:
        """Return embeddings (B, H) of distinct photos and (B, K, H) of their look-alikes, and each row's photo (N,)."""
        keys = [_compute_key(photo) for photo in photos]
        distinct = dict(zip(keys, photos, strict=True))
        embeddings = {key: self._cache[key] for key in distinct if key in self._cache}
        new = [key for key in distinct if key not in embeddings]
        for n in range(0, len(new), PHOTOS_AT_ONCE):
            part = new[n : n + PHOTOS_AT_ONCE]
            batch = [distinct[key] for key in part]
            images = torch.from_numpy(self.judge.encode_photos([self.judge.prepare(photo) for photo in batch]))
            look_alikes = (
                torch.zeros(len(batch), 0, self.judge.size)
                if self.look_alikes is None
                else self.look_alikes.get_embeddings(batch, self.hard - 1)
            )
            embeddings |= dict(zip(part, zip(images, look_alikes, strict=True), strict=True))
        self._cache |= {key: embeddings[key] for key in new}
        while len(self._cache) > CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
        row_by_key = {key: row for row, key in enumerate(distinct)}
        rows = [embeddings[key] for key in distinct]
        return (
            torch.stack([image for image, _ in rows]),
            torch.stack([look_alikes for _, look_alikes in rows]),
            torch.tensor([row_by_key[key] for key in keys]),
        )


def extract_completion_text(completion: Any) -> str:
    """Return the text of a completion: a string, or the last of its chat messages.

    A message's content is a text or a list of parts; parts of the type `text`, or without a type, count. A data set
    gives all parts the same keys, so the text of an image may be None. Raises UserError for another form.
    """
    content = completion
    if isinstance(content, Sequence) and not isinstance(content, str) and content and isinstance(content[-1], Mapping):
        content = content[-1].get("content")
        if isinstance(content, Sequence) and not isinstance(content, str):
            parts = [part for part in content if isinstance(part, Mapping) and part.get("type", "text") == "text"]
            content = " ".join(text for part in parts if isinstance(text := part.get("text"), str))
    if not isinstance(content, str):
        raise UserError(
            f"reward: expected a text or chat messages as completion, got {type(content).__name__}; convert it"
        )
    return " ".join(content.split())


def _parse_photo(value: Any) -> Photo:
    """Return the photo of a row, which may be a list of one photo. Raises UserError for another form."""
    photo = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(photo, str | Path | Image.Image | np.ndarray):
        raise UserError(
            f"reward: expected a path, a Pillow image or an array as photo, got {type(photo).__name__}; convert it"
        )
    return photo


def _compute_key(photo: Photo) -> Hashable:
    """Return the key of a photo: its path, or a digest of its pixels as upright RGB.

    The stored numbers of an image are no key: their meaning depends on palette, colour space and orientation.
    """
    if isinstance(photo, str | Path):
        return os.path.abspath(photo)
    with open_photo(photo, 4) as image:
        return hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()
