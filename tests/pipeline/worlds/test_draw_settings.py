"""Sizes of splits of drawn scenes and films."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.worlds.draw_settings import DrawFilms, DrawScenes
from pipeline.worlds.scenes.scene_world import NEIGHBOURS

EIGHT = 8 * NEIGHBOURS


@pytest.mark.parametrize(("kind", "options"), [(DrawScenes, {}), (DrawFilms, {"frames": 6})])
def test_validation_and_test_are_whole_neighbourhoods_and_leave_images_to_train_on(kind, options):
    def draw(val: int, test: int):
        return kind(images=EIGHT, size=64, val=val, test=test, **options)

    assert draw(NEIGHBOURS, EIGHT - 2 * NEIGHBOURS).val == NEIGHBOURS
    with pytest.raises(ValidationError, match=f"leave nothing of images {EIGHT} to train on"):
        draw(NEIGHBOURS, EIGHT - NEIGHBOURS)
    for sizes in ((NEIGHBOURS, NEIGHBOURS + 1), (NEIGHBOURS + 1, NEIGHBOURS)):
        with pytest.raises(ValidationError, match=f"would divide a neighbourhood of {NEIGHBOURS} "):
            draw(*sizes)
