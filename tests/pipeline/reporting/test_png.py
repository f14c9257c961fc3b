import io
from dataclasses import replace

import pytest
from PIL import Image

from pipeline.reporting.along import example_along, views
from pipeline.reporting.compared import compare
from pipeline.reporting.figures import curve_panels
from pipeline.reporting.gallery import gallery
from pipeline.reporting.png import along_png, gallery_png, panels_png
from pipeline.reporting.results import read_results
from pipeline.reporting.selection import ReportSettings, choose_all

SETTINGS = ReportSettings(images=5)


def read(world, settings=SETTINGS):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    choices = choose_all(results, settings)
    pictures = gallery(results, views(results, choices, compare(results, settings)), world.prepared, world.images,
                       settings)  # fmt: skip
    return results, choices, pictures


def size(png):
    with Image.open(io.BytesIO(png)) as image:
        assert "Software" not in image.info
        return image.size


def test_panels_stand_side_by_side_and_four_in_two_rows(world):
    panels = curve_panels(*read(world)[:2])
    first = panels_png(panels)
    assert first == panels_png(panels)
    assert size(first) == (1980, 735)
    assert size(panels_png([*panels, panels[0]])) == (1320, 1380)
    assert size(panels_png(panels[:1])) == (825, 735 + 28)  # one more line of the legend


def test_what_is_drawn_is_seen(world):
    panels = curve_panels(*read(world)[:2])
    without = [replace(panel, series=()) for panel in panels]
    assert panels_png(without) != panels_png(panels) != panels_png([replace(panel, level=None) for panel in panels])


@pytest.mark.parametrize("images", [0, 1, 5])
def test_the_gallery_is_made_for_any_number_and_deterministic(world, images):
    pictures = read(world, replace(SETTINGS, images=images))[2]
    assert gallery_png(pictures) == gallery_png(pictures)


def test_the_gallery_shows_the_chosen_settings_of_twelve_pictures_at_most(world):
    pictures = read(world)[2]
    unchosen = [replace(p, said=tuple(w for w in p.said if "chosen" in w.views)) for p in pictures]
    assert gallery_png(unchosen) == gallery_png(pictures)
    assert gallery_png(pictures * 3) == gallery_png((pictures * 3)[:12])


def test_one_picture_along_lambda(world):
    along = example_along(read(world)[2], "psst_multinomial")
    png = along_png(*along)
    assert png == along_png(*along)
    assert size(png)[0] == 1440
    assert png != along_png(along[0], along[1][:1])
