from __future__ import annotations

import pytest

from pipeline.analysis.captions import read_captions, texts
from pipeline.analysis.results import read_results
from pipeline.errors import UserError


def test_captions_are_found_by_method_and_cell(world):
    found = said_of_five(read_results(world.sweep, []).runs)
    assert all(f"lambda {lam} " in caption for (_, lam, _), caption in found.items())


def said_of_five(runs):
    keys = [(run.method, run.settings["lambda"], run.settings["seed"]) for run in runs]
    found = {key: rows[5]["caption"] for key, rows in zip(keys, read_captions(runs, [5], ["caption"]), strict=True)}
    assert len(found) == len(runs)
    return found


def test_texts_come_in_the_order_that_is_asked_for(world):
    runs = read_results(world.sweep, world.evaluations).runs
    for run, by_image in zip(runs, read_captions(runs, [9, 5, 7], ["caption"]), strict=True):
        assert texts(run, [9, 5, 7]) == [by_image[image]["caption"] for image in (9, 5, 7)]
    with pytest.raises(UserError, match="no caption of image 99"):
        texts(runs[0], [5, 99])
