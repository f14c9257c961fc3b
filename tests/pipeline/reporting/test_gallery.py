from dataclasses import replace
from itertools import pairwise

import pytest

from pipeline.errors import UserError
from pipeline.reporting import gallery as module
from pipeline.reporting.along import views
from pipeline.reporting.compared import compare
from pipeline.reporting.gallery import gallery, thumbnails
from pipeline.reporting.results import read_results, with_frozen_speakers
from pipeline.reporting.selection import ReportSettings, choose_all

SETTINGS = ReportSettings(images=5)


def read(world):
    results = with_frozen_speakers(read_results(world.sweep, world.evaluations, first=("mle",)), ["luo"])
    return results, views(results, choose_all(results, SETTINGS), compare(results, SETTINGS))


def drawn(world, **changes):
    return gallery(*read(world), world.prepared, world.images, replace(SETTINGS, **changes))


def test_pictures_are_of_the_test_split_with_every_settings_caption(world):
    pictures = drawn(world)
    assert len(pictures) == 5
    numbers = [int(picture.id) - 100 for picture in pictures]
    assert numbers == sorted(numbers)
    assert min(numbers) >= 4
    first, n = pictures[0], numbers[0]
    assert first.human == (f"a <i>person</i> on image {n}", f"the <i>person</i> on image {n}")
    assert first.image.size == (64, 48)
    psst = [words for words in first.said if words.method == "psst_multinomial"]
    assert [words.setting for words in psst] == ["λ 0.001, ρ 0.25", "λ 0.005, ρ 0.25", "λ 0.02, ρ 0.25"]
    assert psst[1].caption.startswith("psst_multinomial says lambda 0.005 rho 0.25 seed 1 of")
    assert psst[1].means == "CIDEr 0.945, R@10 86.5"  # of both seeds
    assert psst[1].views[:2] == ("all", "chosen")
    assert "chosen" not in psst[0].views
    assert psst[1].ranks == {"own": n + 1, "before": n + 2, "judge": None}
    assert all(words.found == () for words in first.said)  # files of an older version


def test_settings_of_one_curve_stand_together(full_world):
    lines = [words.line for words in drawn(full_world, images=1)[0].said]
    assert len(lines) == 1 + 5 * 4 + 4 + 4 + 3 + 3
    assert sum(a != b for a, b in pairwise(lines)) + 1 == len(set(lines)) == 10


def test_what_the_own_listener_finds_is_kept_with_the_right_rank(full_world):
    for picture in drawn(full_world):
        for words in picture.said:
            assert len(words.found) == 5
            rank = words.ranks["own"]
            assert (picture.row in words.found) == (rank <= 5)
            if rank <= 5:
                assert words.found[rank - 1] == picture.row


def test_a_frozen_speaker_says_the_same_to_its_adapted_listener(full_world):
    for picture in drawn(full_world):
        luo, frozen = ([words for words in picture.said if words.method == m] for m in ("luo", "frozen_luo"))
        assert [words.caption for words in luo] == [words.caption for words in frozen]
        assert [words.ranks["adapted"] for words in luo] == [words.ranks["own"] for words in frozen]
        assert [words.ranks["judge"] for words in luo] == [words.ranks["judge"] for words in frozen]
        assert all(words.ranks["adapted"] is None for words in frozen)


def test_thumbnails_are_one_an_image_the_pictures_first(full_world):
    pictures = drawn(full_world)
    made = thumbnails(pictures, full_world.prepared, full_world.images)
    rows = [picture.row for picture in pictures]
    assert list(made)[:5] == rows
    assert set(made) == {*rows, *(row for picture in pictures for words in picture.said for row in words.found)}
    assert all(thumbnail.src.startswith("data:image/jpeg;base64,") for thumbnail in made.values())
    assert made[rows[0]].text == f"a <i>person</i> on image {rows[0]}"


def test_thumbnails_keep_to_their_budget_and_the_least_found_go(full_world, monkeypatch):
    pictures = drawn(full_world)
    everything = thumbnails(pictures, full_world.prepared, full_world.images)
    budget = sum(len(thumbnail.src) for thumbnail in list(everything.values())[:9])
    monkeypatch.setattr(module, "BUDGET", budget)
    assert list(thumbnails(pictures, full_world.prepared, full_world.images)) == list(everything)[:9]
    assert thumbnails([], full_world.prepared, full_world.images) == {}


def test_the_seed_draws_and_more_than_there_are_gives_all(world):
    def ids(**changes):
        return [picture.id for picture in drawn(world, **changes)]

    assert ids() == ids()
    assert len({tuple(ids(seed=seed)) for seed in range(5)}) > 1
    assert ids(images=99) == [str(n) for n in range(104, 112)]


def test_an_image_without_a_caption_has_none(world):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = world.root / "evaluation" / "mle" / "captions.parquet"
    table = pq.read_table(path)
    pq.write_table(table.filter(pc.field("image") != 7), path)
    pictures = drawn(world, images=99)
    (seven,) = [picture for picture in pictures if picture.id == "107"]
    assert seven.said[0].caption is None
    assert set(seven.said[0].ranks.values()) == {None}
    assert seven.said[1].caption is not None


def test_a_large_picture_is_made_small(world):
    from PIL import Image

    for n in range(12):
        Image.new("RGB", (900, 300)).save(world.images / f"{n}.jpg")
    assert drawn(world)[0].image.size == (320, 107)


def test_missing_files_are_named(world):
    results, seen = read(world)
    for n in range(12):
        (world.images / f"{n}.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"\d\.jpg: the image cannot be read"):
        gallery(results, seen, world.prepared, world.images, SETTINGS)
    (world.sweep / "captions.parquet").unlink()
    with pytest.raises(UserError, match=r"captions\.parquet: no such file"):
        gallery(results, seen, world.prepared, world.images, SETTINGS)
