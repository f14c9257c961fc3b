from __future__ import annotations

import pytest

from pipeline.errors import UserError
from pipeline.reporting.captions import read_captions, texts
from pipeline.reporting.results import read_results


def test_captions_are_found_by_settings_where_cells_have_no_name(world, cells):
    results = read_results(world.sweep, [])
    by_settings = said_of_five(results.runs)
    for entry, row in zip(cells, cells, strict=True):
        entry["cell"] = ",".join(f"{key}={value}" for key, value in row["settings"].items())
    world.write(cells, [])
    named = read_results(world.sweep, [])
    assert all(run.cell for run in named.runs)
    assert said_of_five(named.runs) == by_settings
    assert all(f"lambda {lam} " in caption for (_, lam, _), caption in by_settings.items())


def said_of_five(runs):
    keys = [(run.method, run.settings["lambda"], run.settings["seed"]) for run in runs]
    found = {key: rows[5]["caption"] for key, rows in zip(keys, read_captions(runs, [5]), strict=True)}
    assert len(found) == len(runs)
    return found


def test_texts_come_in_the_order_that_is_asked_for(world, cells):
    for entry in cells:
        entry["cell"] = ",".join(f"{key}={value}" for key, value in entry["settings"].items())
    world.write(cells, [])
    runs = read_results(world.sweep, world.evaluations).runs
    for run, by_image in zip(runs, read_captions(runs, [9, 5, 7]), strict=True):
        assert texts(run, [9, 5, 7]) == [by_image[image]["caption"] for image in (9, 5, 7)]
    with pytest.raises(UserError, match="no caption of image 99"):
        texts(runs[0], [5, 99])
