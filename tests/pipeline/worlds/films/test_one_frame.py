"""Listeners on the exact facts of frames, without colours: R@1 is lower with one frame than with all frames."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.models.listener import Listener
from pipeline.scores.discriminability import InfoNCE
from pipeline.types import Batch, Message, make_caption_mask
from pipeline.worlds.films.film_captions import describe_film
from pipeline.worlds.films.film_facts import Film
from pipeline.worlds.films.motion import list_visible_actors
from pipeline.worlds.films.sample_films import sample_film_neighbourhood
from pipeline.worlds.scenes.scene_world import NEIGHBOURS

TRAIN, VAL, FRAMES, STEPS, BATCH_GROUPS = 120, 40, 8, 200, 8


def encode_actors(films: list[Film], frames: int) -> Tensor:
    """Return features of films: the actors' boxes, facings and poses in all frames, or in the middle frame only."""
    found = [list_visible_actors(film, FRAMES) for film in films]
    poses = sorted({actor.pose for film in found for actor in film})
    rows = np.zeros((len(films), FRAMES, 2, 6 + len(poses)), np.float32)
    for row, film in zip(rows, found, strict=True):
        for actor in film:
            row[actor.frame, actor.actor, :6] = (1, actor.facing == "left", *actor.box)
            row[actor.frame, actor.actor, 6 + poses.index(actor.pose)] = 1
    numbers = range(FRAMES) if frames == FRAMES else [FRAMES // 2]
    return torch.from_numpy(rows[:, numbers].reshape(len(films), -1))


def encode_captions(films: list[Film]) -> tuple[Tensor, int]:
    """Return the tokens (N, T) of one caption of each film, and the number of different words."""
    captions = [describe_film(film, 1, i, captions=1)[0].raw.split() for i, film in enumerate(films)]
    numbers = {word: n for n, word in enumerate(sorted({w for caption in captions for w in caption}), 1)}
    tokens = torch.zeros(len(films), 1 + max(map(len, captions)), dtype=torch.int64)
    for row, caption in zip(tokens, captions, strict=True):
        row[: len(caption)] = torch.tensor([numbers[word] for word in caption])
    return tokens, len(numbers)


def measure_recall(vectors: Tensor, tokens: Tensor, words: int) -> float:
    """Return R@1 among a neighbourhood's eight films, by a listener trained on the first `TRAIN` neighbourhoods."""
    torch.manual_seed(0)
    listener = Listener(words, vectors.shape[1], words=32, hidden=64, encoder="pair")
    optimiser = torch.optim.Adam(listener.parameters(), 2e-3)

    score = InfoNCE(listener)

    def make_batch(rows: Tensor) -> tuple[Message, Batch]:
        captions = tokens[rows]
        regions, mask = vectors[rows, None], torch.ones(len(rows), 1, dtype=torch.bool)
        message = Message(captions, make_caption_mask(captions), torch.arange(len(rows)), samples=1)
        return message, Batch(rows, vectors[rows], regions, mask, captions)

    for _ in range(STEPS):
        first_rows = torch.randperm(TRAIN)[:BATCH_GROUPS, None] * NEIGHBOURS
        loss = -score(*make_batch((first_rows + torch.arange(NEIGHBOURS)).flatten())).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    hits = 0
    with torch.no_grad():
        for first in range(TRAIN * NEIGHBOURS, (TRAIN + VAL) * NEIGHBOURS, NEIGHBOURS):
            message, batch = make_batch(torch.arange(first, first + NEIGHBOURS))
            found = (listener.encode_text(message) @ listener.encode_image(batch.pooled).T).argmax(1)
            hits += int((found == torch.arange(NEIGHBOURS)).sum())
    return hits / (VAL * NEIGHBOURS)


@pytest.mark.slow
def test_recall_is_lower_with_one_frame_than_with_eight() -> None:
    films = [film for number in range(TRAIN + VAL) for film in sample_film_neighbourhood(1, number)]
    tokens, words = encode_captions(films)
    one, eight = (measure_recall(encode_actors(films, frames), tokens, words) for frames in (1, FRAMES))
    assert eight > one + 0.05
    assert eight > 2 / NEIGHBOURS
