"""Sizes of the splits and images of drawn scenes and films."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.worlds.draw_settings import DrawFilms, DrawScenes
from pipeline.worlds.scenes.scene_world import MAX_IMAGES, NEIGHBOURS

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


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"images": MAX_IMAGES + 1}, "less than or equal to 1000000"),
        ({"size": 31}, "greater than or equal to 32"),
        ({"size": 1025}, "less than or equal to 1024"),
        ({"val": -NEIGHBOURS}, "greater than or equal to 1"),
        ({"test": 0}, "greater than or equal to 1"),
        ({"frames": 3}, "greater than or equal to 4"),
        ({"frames": 101}, "less than or equal to 100"),
    ],
)
def test_numbers_that_cannot_be_drawn_are_refused(numbers, message):
    limits = {"images": MAX_IMAGES, "size": 1024, "frames": 100, "val": NEIGHBOURS, "test": NEIGHBOURS}
    assert DrawFilms(**limits).frames == 100
    scene_limits = {name: value for name, value in limits.items() if name != "frames"}
    assert DrawScenes(**scene_limits).images == MAX_IMAGES
    with pytest.raises(ValidationError, match=message):
        DrawFilms(**limits | numbers)
    if "frames" not in numbers:
        with pytest.raises(ValidationError, match=message):
            DrawScenes(**scene_limits | numbers)
