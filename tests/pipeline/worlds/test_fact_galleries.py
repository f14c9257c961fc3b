"""Hard galleries of drawn images: neighbourhoods by the facts, or images of equal setting, weather and light."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from pipeline.errors import UserError
from pipeline.worlds.fact_galleries import build_galleries_by_facts


def make_prepared(folder, records):
    (folder / "facts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return SimpleNamespace(folder=folder, ids=pa.array([str(n) for n in range(6)]))


def test_galleries_are_neighbourhoods_or_images_of_equal_setting_weather_and_light(tmp_path):
    scene = {"setting": "park", "weather": "sunny", "light": "day"}
    records = [{"imgid": n, **scene, "neighbourhood": n // 2} for n in range(6)]
    assert build_galleries_by_facts(make_prepared(tmp_path, records))(np.array([1, 3, 0, 2])).tolist() == [
        [2],
        [3],
        [0],
        [1],
    ]
    records = [{"imgid": n, **scene, "light": "night" if n == 5 else "day"} for n in range(6)]
    for no_neighbourhood in ({}, {"neighbourhood": -1}):
        prepared = make_prepared(tmp_path, [record | no_neighbourhood for record in records])
        assert build_galleries_by_facts(prepared)(np.array([4, 5, 0])).tolist() == [[2], [-1], [0]]


def test_missing_facts_are_reported(tmp_path):
    scene = dict.fromkeys(("setting", "weather", "light"), "x")
    records = [{"imgid": n, "neighbourhood": 0, **scene} for n in range(5)]
    find_galleries = build_galleries_by_facts(make_prepared(tmp_path, records))
    with pytest.raises(UserError, match="no facts of image 5; run the prepare stage again"):
        find_galleries(np.arange(6))
    with pytest.raises(UserError, match=r"evaluate\.hard_gallery\.similarity = facts needs the facts of drawn scenes"):
        build_galleries_by_facts(SimpleNamespace(folder=tmp_path / "photos"))


def test_a_damaged_line_of_facts_is_reported(tmp_path):
    prepared = make_prepared(tmp_path, [])
    (tmp_path / "facts.jsonl").write_text('{"imgid": 0, "neighbourhood": 0, "setting": "par')
    with pytest.raises(UserError, match="line 1 holds no scene"):
        build_galleries_by_facts(prepared)
