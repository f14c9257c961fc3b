"""The drawn films on disk: complete, readable, and equal for any number of workers."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from pipeline.errors import UserError
from pipeline.readers import read_karpathy
from pipeline.worlds.films.draw_film import draw_film, save_gif
from pipeline.worlds.films.film_facts import FILM_FACTS, read_films
from pipeline.worlds.films.motion import list_visible_actors
from pipeline.worlds.films.sample_films import sample_film
from pipeline.worlds.films.write_films import draw_films

IMAGES, SIZE, FRAMES, VAL, TEST = 56, 48, 6, 8, 16


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn") / "films"
    counts = draw_films(root, IMAGES, SIZE, FRAMES, VAL, TEST, seed=1, workers=1)
    words = counts.pop("words")
    assert counts == {"images": IMAGES, "train": 32, "val": VAL, "test": TEST, "captions": 5 * IMAGES}
    assert words > 80
    return root


def read_folder(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_two_workers_write_the_same_bytes_as_one(root: Path, tmp_path: Path) -> None:
    draw_films(tmp_path / "films", IMAGES, SIZE, FRAMES, VAL, TEST, seed=1, workers=2)
    assert read_folder(tmp_path / "films") == read_folder(root)


def test_films_depend_on_the_seed_but_not_on_the_number_of_films(root: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        draw_films(tmp_path / f"{seed}", 17, SIZE, FRAMES, 8, 8, seed=seed, workers=1)
    full, same_seed, other_seed = (read_folder(folder) for folder in (root, tmp_path / "1", tmp_path / "2"))
    for name in (f"images/{i:06d}.gif" for i in range(17)):
        assert full[name] == same_seed[name] != other_seed[name]


def test_a_gif_holds_the_drawn_frames_with_equal_durations(root: Path) -> None:
    for i in (0, 9, 30):
        drawn = draw_film(sample_film(1, i), 1, FRAMES, SIZE)
        with Image.open(root / f"images/{i:06d}.gif") as gif:
            frames = [(frame.info["duration"], frame.convert("RGB")) for frame in ImageSequence.Iterator(gif)]
        assert [duration for duration, _ in frames] == [100] * FRAMES
        for (_, frame), expected in zip(frames, drawn, strict=True):
            assert np.abs(np.asarray(frame, int) - np.asarray(expected, int)).mean() < 4


def test_equal_frames_are_not_joined(tmp_path: Path) -> None:
    picture = Image.new("RGB", (32, 32), (200, 30, 30))
    picture.paste((30, 30, 200), (16, 0, 32, 32))
    save_gif(tmp_path / "still.gif", [picture] * 5)
    with Image.open(tmp_path / "still.gif") as gif:
        assert gif.n_frames == 5


def test_a_drawn_data_set_is_read_by_the_karpathy_reader(root: Path) -> None:
    corpus = read_karpathy(root / "dataset_films.json")
    assert [image.split for image in corpus.images] == ["test"] * TEST + ["val"] * VAL + ["train"] * 32
    assert {len(image.captions) for image in corpus.images} == {5}


def test_facts_belong_to_the_films_and_no_neighbourhood_is_in_two_splits(root: Path) -> None:
    facts = read_films(root / FILM_FACTS)
    assert list(facts) == [str(i) for i in range(IMAGES)]
    for i, film in enumerate(facts.values()):
        assert film.film == sample_film(1, i)
        assert film.frames == FRAMES
        assert list(film.views) == list_visible_actors(film.film, FRAMES)
    neighbourhoods = [
        {facts[str(i)].film.scene.neighbourhood for i in rows} for rows in (range(16), range(16, 24), range(24, 56))
    ]
    assert neighbourhoods == [{0, 1}, {2}, {3, 4, 5, 6}]
    record = json.loads((root / FILM_FACTS).read_text().splitlines()[0])
    assert set(record["boxes"][0]) == {"frame", "actor", "category", "pose", "facing", "box"}


def test_missing_and_damaged_facts_are_reported(root: Path, tmp_path: Path) -> None:
    lines = (root / FILM_FACTS).read_text().splitlines()
    (tmp_path / FILM_FACTS).write_text("\n".join([lines[0], lines[1][:100]]))
    with pytest.raises(UserError, match="line 2 holds no film"):
        read_films(tmp_path / FILM_FACTS)
    with pytest.raises(UserError, match="no such file; draw the films again"):
        read_films(tmp_path / "missing.jsonl")
