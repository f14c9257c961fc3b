"""Embeddings of captions in the cache: an interrupted run continues, and damage changes nothing."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from colour_judge import ColourJudge, paint_colours
from file_damage import DAMAGE_KINDS, damage_content

from saywhich.judging.photo_vectors import TEXT_BATCH, encode_captions, encode_gallery

TEXTS = [f"red {'green ' * (number % 7)}{'blue ' * (number % 5)}{number}" for number in range(3 * TEXT_BATCH)]


class CountingJudge(ColourJudge):
    """A judge that counts the captions that it encodes, and is interrupted after `allowed` captions."""

    encoded, allowed = 0, 10**9

    def encode_texts(self, texts):
        if self.encoded + len(texts) > self.allowed:
            raise KeyboardInterrupt
        self.encoded += len(texts)
        return super().encode_texts(texts)


class MirroredJudge(ColourJudge):
    """A judge that embeds photos and captions with red and blue exchanged."""

    digest = "mirrored"

    def encode_photos(self, prepared):
        return super().encode_photos(prepared)[:, ::-1].copy()

    def encode_texts(self, texts):
        return super().encode_texts(texts).flip(1)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> Path:
    """Set a temporary cache, and return its folder of photos."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "saywhich/photos"


def count_encoded(texts=TEXTS, digest: str = "colours") -> int:
    """Encode captions, check their embeddings against those without a cache, and count the captions encoded."""
    judge = CountingJudge()
    judge.digest = digest
    assert torch.equal(encode_captions(judge, texts), ColourJudge().encode_texts(texts))
    return judge.encoded


def test_equal_captions_are_encoded_once_and_share_an_embedding():
    assert count_encoded([*TEXTS, *reversed(TEXTS)]) == len(TEXTS)


def test_an_interrupted_run_continues_and_a_second_run_encodes_nothing():
    judge = CountingJudge()
    judge.allowed = 2 * TEXT_BATCH
    with pytest.raises(KeyboardInterrupt):
        encode_captions(judge, TEXTS)
    assert count_encoded() == TEXT_BATCH
    assert count_encoded() == 0
    assert count_encoded([*TEXTS, "a new one"]) == 1
    assert count_encoded(digest="another model") == len(TEXTS)


@pytest.mark.parametrize("damage", DAMAGE_KINDS)
def test_a_damaged_cache_gives_equal_embeddings_and_is_repaired(cache_folder, damage):
    assert count_encoded() == len(TEXTS)
    encode_captions(MirroredJudge(), TEXTS)  # its embeddings differ, so that swapped files must be detected
    (file,), (other,) = (list((cache_folder / name).iterdir()) for name in ("colours", "mirrored"))
    rng = random.Random(damage)
    for _ in range(4):
        file.write_bytes(damage_content(damage, file.read_bytes(), [other.read_bytes()], rng))
        count_encoded()
        count_encoded()
        assert count_encoded() == 0, "expected the cache to be repaired"


def test_a_cache_that_loses_rows_is_rebuilt(cache_folder):
    count_encoded()
    with closing(sqlite3.connect(*(cache_folder / "colours").iterdir())) as database:
        database.executescript(
            "DELETE FROM captions; CREATE TRIGGER lose AFTER INSERT ON captions BEGIN DELETE FROM captions; END"
        )
    assert [count_encoded() for _ in range(3)] == [len(TEXTS), len(TEXTS), 0]


def test_models_do_not_share_embeddings_of_photos(tmp_path):
    paint_colours(tmp_path / "photos")
    files = sorted((tmp_path / "photos").iterdir())
    for _ in range(2):
        plain, mirrored = (encode_gallery(judge, files).vectors for judge in (ColourJudge(), MirroredJudge()))
        np.testing.assert_array_equal(plain, mirrored[:, ::-1])
        assert plain[0].tolist() == [1, 0, 0]
