"""Rewards of captions of three photos against values computed by hand, and the forms of input that are accepted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from colour_judge import ColourJudge, paint_colours
from PIL import ExifTags, Image

import saywhich
from pipeline.errors import UserError
from saywhich.judging.hard_galleries import find_neighbour_galleries
from saywhich.judging.photo_vectors import encode_gallery
from saywhich.judging.thumbnails import Thumbnails
from saywhich.photos import list_photo_files
from saywhich.rewarding.caption_reward import extract_completion_text

COS_45 = 1 / math.sqrt(2)  # cosine of 45°
CAPTIONS = ["red", "a green thing", "red and green"]
PHOTOS = ["photos/a.png", "photos/b.png", "photos/c.png"]
TAU = 0.5
# cosines of the captions (rows) with photos a, b, c: (1, 0, COS_45), (0, 1, COS_45), (COS_45, COS_45, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint_colours(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scaled_logsumexp(*cosines: float) -> float:
    return TAU * math.log(sum(math.exp(each / TAU) for each in cosines))


def test_contrastive_over_the_batch():
    reward = saywhich.reward(ColourJudge(), temperature=TAU)
    expected = [
        2 * (1 - scaled_logsumexp(0, COS_45)),
        2 * (1 - scaled_logsumexp(0, COS_45)),
        2 * (1 - scaled_logsumexp(COS_45, COS_45)),
    ]
    assert reward(["say"] * 3, CAPTIONS, image=PHOTOS) == pytest.approx(expected)
    assert reward.__name__ == "saywhich_contrastive"


def test_captions_of_the_same_photo_are_no_negatives():
    reward = saywhich.reward(ColourJudge(), temperature=TAU)
    rewards = reward(["say"] * 3, ["red", "red and green", "green"], image=[PHOTOS[0], PHOTOS[0], PHOTOS[1]])
    # photo a has the captions "red" and "red and green"; photo b has "green"
    expected = [(1 - 0) + (1 - 0), (COS_45 - COS_45) + (COS_45 - 0), (1 - 0) + (1 - scaled_logsumexp(0, COS_45))]
    assert rewards == pytest.approx(expected)
    assert reward(["say"] * 2, CAPTIONS[:2], image=[PHOTOS[0]] * 2) == [0, 0]  # the reward is 0 without negatives


@pytest.mark.parametrize("hard", [3, 9])
def test_hard_gallery(hard):
    """The folder holds three photos, so a gallery of nine has the same two negatives as a gallery of three."""
    negatives = [[0, COS_45], [0, COS_45], [COS_45, COS_45]]
    reward = saywhich.reward(ColourJudge(), score="hard", hard=hard, photos="photos", temperature=TAU)
    expected = [1 - scaled_logsumexp(*each) for each in negatives]
    assert reward(["say"] * 3, CAPTIONS, image=PHOTOS) == pytest.approx(expected)
    assert reward(["say"], CAPTIONS[:1], image=PHOTOS[:1]) == pytest.approx(expected[:1])  # the batch has no effect


def test_contrastive_with_look_alikes():
    reward = saywhich.reward(ColourJudge(), photos="photos", hard=3, temperature=TAU)
    (value,) = reward(["say"], CAPTIONS[:1], image=PHOTOS[:1])
    assert value == pytest.approx(1 - scaled_logsumexp(0, COS_45))


def test_clip_score():
    reward = saywhich.reward(ColourJudge(), score="clip_score")
    assert reward(["say"] * 3, CAPTIONS, image=[PHOTOS[0], *PHOTOS[:2]]) == pytest.approx([2.5, 0, 2.5 * COS_45])


def test_every_form_of_completions_and_photos_is_accepted():
    reward = saywhich.reward(ColourJudge(), score="hard", photos="photos", temperature=TAU)
    expected = reward(["say"] * 3, CAPTIONS, image=PHOTOS)
    chat = [
        [{"role": "assistant", "content": "red"}],
        [{"role": "user", "content": "red"}, {"role": "assistant", "content": [{"type": "text", "text": "green "}]}],
        [{"role": "assistant", "content": " red\nand green"}],
    ]
    parts = [{"type": "image", "text": None}, {"type": "reasoning", "text": "blue"}, {"type": "text", "text": "red"}]
    assert extract_completion_text([{"role": "assistant", "content": parts}]) == "red"
    with Image.open(PHOTOS[0]) as image:
        pillow = image.copy()
    photos = [pillow, [PHOTOS[1]], np.asarray(Image.open(PHOTOS[2]))]
    columns = {"photo": photos, "completion_ids": [[1]] * 3, "trainer_state": None}
    reward.column = "photo"
    assert reward([[{"role": "user", "content": "say"}]] * 3, chat, **columns) == pytest.approx(expected)
    assert reward([], [], photo=[]) == []


def test_truncated_completions_are_counted():
    reward = saywhich.reward(ColourJudge())
    reward(["say"] * 2, ["red", "green " * 21], image=PHOTOS[:2])
    assert reward.truncated_count == 1
    with_prompt = saywhich.reward(ColourJudge(), score="clip_score")  # its prompt “A photo depicts” adds three words
    with_prompt(["say"] * 2, ["red " * 17, "green " * 18], image=PHOTOS[:2])
    assert with_prompt.truncated_count == 1


def test_look_alikes_equal_the_hard_galleries_of_saywhich_judge(folder):
    generator = np.random.default_rng(0)
    for name in range(30):
        pixels = generator.integers(0, 256, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((32, 32), Image.Resampling.NEAREST).save(folder / f"photos/{name}.png")
    reward = saywhich.reward(ColourJudge(), photos="photos", hard=5)
    files = list_photo_files(["photos"])
    vectors = torch.from_numpy(encode_gallery(Thumbnails(), files).vectors)
    assert (
        reward.look_alikes.find_nearest(files, 4).tolist()
        == find_neighbour_galleries(vectors, vectors, 5, False).tolist()
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "psst"}, "reward: score 'psst' is not known; choose from contrastive, hard, clip_score"),
        ({"hard": 1}, "reward: hard = 1; give 2 or more"),
        ({"temperature": 0}, "reward: temperature = 0; give a finite number above 0"),
        ({"temperature": math.inf}, "reward: temperature = inf; give a finite number above 0"),
        ({"photos": "broken"}, "reward: photos = broken; none of its photos can be decoded: give another folder"),
        ({"score": "hard"}, "reward: the score 'hard' needs look-alikes; give photos=FOLDER"),
    ],
)
def test_invalid_settings_are_reported_in_one_line(folder, settings, message):
    (folder / "broken").mkdir()
    (folder / "broken/a.png").write_bytes(b"no photo")
    with pytest.raises(UserError, match=f"^{message}$"):
        saywhich.reward(ColourJudge(), **settings)


@pytest.mark.parametrize(
    ("completions", "columns", "message"),
    [
        (["red"], {"photo": PHOTOS[:1]}, "no column 'image' with a photo per completion"),
        (["red"], {"image": PHOTOS}, "no column 'image' with a photo per completion"),
        (["red"], {"image": [None]}, "expected a path, a Pillow image or an array as photo, got NoneType"),
        ([None], {"image": PHOTOS[:1]}, "expected a text or chat messages as completion, got NoneType"),
    ],
)
def test_invalid_rows_are_reported_in_one_line(completions, columns, message):
    with pytest.raises(UserError, match=message):
        saywhich.reward(ColourJudge())(["say"], completions, **columns)


def test_photos_with_the_same_file_name_in_two_folders_are_distinct(folder):
    (folder / "more").mkdir()
    Image.open("photos/b.png").save("more/a.png")
    reward = saywhich.reward(ColourJudge(), score="clip_score")
    assert reward(["say"] * 2, ["red", "red"], image=["photos/a.png", "more/a.png"]) == pytest.approx([2.5, 0])
    assert reward(["say"], ["green"], image=["more/a.png"]) == pytest.approx([2.5])


def test_images_of_equal_stored_numbers_and_other_colours_or_orientation_are_distinct():
    reward = saywhich.reward(ColourJudge(), score="clip_score")
    red, green = (Image.new("P", (8, 8)) for _ in range(2))
    red.putpalette([255, 0, 0])
    green.putpalette([0, 255, 0])
    assert reward(["say"] * 2, ["red", "green"], image=[red, green]) == pytest.approx([2.5, 2.5])
    upright, turned = (Image.new("RGB", (8, 8)) for _ in range(2))
    turned.getexif()[ExifTags.Base.Orientation] = 6
    for image in (upright, turned):
        image.paste((255, 0, 0), (0, 0, 4, 8))
    photos = reward._encode_photos([upright, turned, upright])[2]
    assert photos.tolist() == [0, 1, 0]
