"""Sizes of the splits and images of drawn scenes and films."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.worlds.draw_settings import DrawFilms, DrawScenes
from pipeline.worlds.scenes.dataset_files import check_sizes
from pipeline.worlds.scenes.scene_world import NEIGHBOURS

IMAGES = 8 * NEIGHBOURS


@pytest.mark.parametrize(("kind", "options"), [(DrawScenes, {}), (DrawFilms, {"frames": 6})])
def test_validation_and_test_are_whole_neighbourhoods_and_leave_images_to_train_on(kind, options):
    def make_settings(val: int, test: int):
        return kind(images=IMAGES, size=64, val=val, test=test, **options)

    assert make_settings(NEIGHBOURS, IMAGES - 2 * NEIGHBOURS).val == NEIGHBOURS
    with pytest.raises(ValidationError, match=f"leave no training images of {IMAGES}: increase images"):
        make_settings(NEIGHBOURS, IMAGES - NEIGHBOURS)
    for sizes in ((NEIGHBOURS, NEIGHBOURS + 1), (NEIGHBOURS + 1, NEIGHBOURS)):
        with pytest.raises(ValidationError, match=f"would divide a neighbourhood of {NEIGHBOURS} "):
            make_settings(*sizes)


@pytest.mark.parametrize(("kind", "options"), [(DrawScenes, {}), (DrawFilms, {"frames": 6})])
def test_sizes_that_cannot_be_drawn_are_refused(kind, options):
    sizes = {"images": IMAGES, "val": NEIGHBOURS, "test": NEIGHBOURS, **options}
    check_sizes(IMAGES, kind(size=1024, **sizes).size, NEIGHBOURS, NEIGHBOURS, seed=0)
    with pytest.raises(ValidationError, match="less than or equal to 1024"):
        kind(size=1025, **sizes)
