import io
from dataclasses import replace

import pytest
from PIL import Image

from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.judge_titles import get_judge_title
from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.report.gallery import build_gallery_views, choose_lambda_example, sample_images, select_pictures
from pipeline.report.pictures import draw_gallery_png, draw_lambda_example_png

SETTINGS, OWN = ReportSettings(images=5), get_judge_title("own")


def read(world, settings=SETTINGS):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    choices = choose_all(results, settings)
    views = build_gallery_views(results, choices, compare_methods(results, settings))
    pictures = select_pictures(sample_images(world.prepared, settings), results, views, world.prepared, world.images)
    return results, choices, pictures


def read_size(png):
    with Image.open(io.BytesIO(png)) as image:
        assert "Software" not in image.info
        return image.size


@pytest.mark.parametrize("images", [0, 1, 5])
def test_the_gallery_sheet_is_deterministic_for_any_number_of_images(world, images):
    pictures = read(world, replace(SETTINGS, images=images))[2]
    assert draw_gallery_png(pictures, OWN) == draw_gallery_png(pictures, OWN)


def test_a_sheet_names_the_annotator_of_the_human_captions(world):
    pictures = read(world)[2]
    assert {picture.annotator for picture in pictures} == {"person"}
    drawn = [replace(picture, annotator="simulated annotator") for picture in pictures]
    assert draw_gallery_png(drawn, OWN) != draw_gallery_png(pictures, OWN)


def test_the_gallery_shows_the_chosen_settings_of_twelve_pictures_at_most(world):
    pictures = read(world)[2]
    chosen_only = [replace(p, captions=tuple(w for w in p.captions if "chosen" in w.views)) for p in pictures]
    assert draw_gallery_png(chosen_only, OWN) == draw_gallery_png(pictures, OWN)
    assert draw_gallery_png(pictures * 3, OWN) == draw_gallery_png((pictures * 3)[:12], OWN)


def test_the_lambda_example_is_deterministic_and_shows_its_captions(world):
    along = choose_lambda_example(read(world)[2], "psst_multinomial")
    png = draw_lambda_example_png(*along, OWN)
    assert png == draw_lambda_example_png(*along, OWN)
    assert read_size(png)[0] == 1440
    assert png != draw_lambda_example_png(along[0], along[1][:1], OWN)
