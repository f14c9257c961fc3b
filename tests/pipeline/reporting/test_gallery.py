from dataclasses import replace

import pytest

from pipeline.errors import UserError
from pipeline.reporting.gallery import gallery, gallery_png, read_captions
from pipeline.reporting.results import read_results
from pipeline.reporting.selection import ReportSettings, choose_all

SETTINGS = ReportSettings(images=5)


def read(world):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    return choose_all(results, SETTINGS)


def test_pictures_are_of_the_test_split_with_each_methods_chosen_caption(world):
    pictures = gallery(read(world), world.prepared, world.images, SETTINGS)
    assert len(pictures) == 5
    numbers = [int(picture.id) - 100 for picture in pictures]
    assert numbers == sorted(numbers)
    assert min(numbers) >= 4
    assert pictures[0].human == f"a <i>person</i> on image {numbers[0]}"
    said = {said.method: said for said in pictures[0].said}
    assert list(said) == ["mle", "psst_multinomial", "st_multinomial", "luo"]
    assert said["psst_multinomial"].caption.startswith("psst_multinomial says lambda 0.005 rho 0.25 seed 1 of")
    assert said["mle"].caption.startswith("mle says seed 1 of")
    assert said["luo"].ranks == {"own": numbers[0] + 1, "before": numbers[0] + 2, "judge": None}
    assert pictures[0].image.size == (64, 48)


def test_the_seed_draws_and_more_than_there_are_gives_all(world):
    choices = read(world)

    def drawn(**changes):
        pictures = gallery(choices, world.prepared, world.images, replace(SETTINGS, **changes))
        return [picture.id for picture in pictures]

    assert drawn() == drawn()
    assert len({tuple(drawn(seed=seed)) for seed in range(5)}) > 1
    assert drawn(images=99) == [str(n) for n in range(104, 112)]


def test_captions_are_found_by_settings_where_cells_have_no_name(world, cells):
    results = read_results(world.sweep, [])
    by_settings = {run.point: read_captions(run, [5])[5]["caption"] for run in results.runs}
    for entry, row in zip(cells, cells, strict=True):
        entry["cell"] = ",".join(f"{key}={value}" for key, value in row["settings"].items())
    world.write(cells, [])
    named = read_results(world.sweep, [])
    assert all(run.cell for run in named.runs)
    assert {run.point: read_captions(run, [5])[5]["caption"] for run in named.runs} == by_settings
    assert all(f"lambda {run.settings['lambda']}" in read_captions(run, [5])[5]["caption"] for run in named.runs)


def test_an_image_without_a_caption_has_none(world):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = world.root / "evaluation" / "mle" / "captions.parquet"
    table = pq.read_table(path)
    pq.write_table(table.filter(pc.field("image") != 7), path)
    pictures = gallery(read(world), world.prepared, world.images, replace(SETTINGS, images=99))
    (seven,) = [picture for picture in pictures if picture.id == "107"]
    assert seven.said[0].caption is None
    assert set(seven.said[0].ranks.values()) == {None}
    assert seven.said[1].caption is not None


def test_a_large_picture_is_made_small(world):
    from PIL import Image

    for n in range(12):
        Image.new("RGB", (900, 300)).save(world.images / f"{n}.jpg")
    assert gallery([], world.prepared, world.images, SETTINGS)[0].image.size == (320, 107)


def test_missing_files_are_named(world):
    choices = read(world)
    for n in range(12):
        (world.images / f"{n}.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"\d\.jpg: the image cannot be read"):
        gallery(choices, world.prepared, world.images, SETTINGS)
    (world.sweep / "captions.parquet").unlink()
    with pytest.raises(UserError, match=r"captions\.parquet: no such file"):
        gallery(choices, world.prepared, world.images, SETTINGS)


@pytest.mark.parametrize("images", [0, 1, 5])
def test_png_is_made_for_any_number_and_deterministic(world, images):
    pictures = gallery(read(world), world.prepared, world.images, replace(SETTINGS, images=images))
    assert gallery_png(pictures) == gallery_png(pictures)
