"""Who is near an image: by the facts' neighbourhoods, or by a retriever's vectors."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.errors import UserError
from pipeline.evaluation.hard_gallery import galleries_by_facts, galleries_by_key, galleries_by_vectors


def prepared(folder, records):
    (folder / "facts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return SimpleNamespace(folder=folder, ids=pa.array([str(n) for n in range(6)]))


def test_images_of_one_key_are_near_each_other_and_to_nobody_else():
    assert galleries_by_key([7, "a", 7, 7, "b", "a"]).tolist() == [[2, 3], [5, -1], [0, 3], [0, 2], [-1, -1], [1, -1]]
    assert galleries_by_key(["a", "b"]).shape == (2, 0)


def test_scenes_are_near_in_their_neighbourhood_or_else_by_place_weather_and_light(tmp_path):
    same = {"setting": "park", "weather": "sunny", "light": "day"}
    records = [{"imgid": n, **same, "neighbourhood": n // 2} for n in range(6)]
    assert galleries_by_facts(prepared(tmp_path, records))(np.array([1, 3, 0, 2])).tolist() == [[2], [3], [0], [1]]
    records = [{"imgid": n, **same, "light": "night" if n == 5 else "day"} for n in range(6)]
    assert galleries_by_facts(prepared(tmp_path, records))(np.array([4, 5, 0])).tolist() == [[2], [-1], [0]]


def test_missing_facts_are_told(tmp_path):
    with pytest.raises(UserError, match="no facts of image 5; run the prepare stage again"):
        galleries_by_facts(prepared(tmp_path, [{"imgid": n, "neighbourhood": 0} | dict.fromkeys(
            ("setting", "weather", "light"), "x") for n in range(5)]))(np.arange(6))  # fmt: skip
    with pytest.raises(UserError, match=r"evaluate\.near\.by = facts needs the facts of drawn scenes"):
        galleries_by_facts(SimpleNamespace(folder=tmp_path / "photos"))


def test_a_retriever_has_the_images_that_its_vectors_put_nearest():
    vectors = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    rows = np.array([1, 2, 3, 4])
    assert galleries_by_vectors(lambda images: vectors[images], 2)(rows).tolist() == [[2], [3], [0], [1]]
    assert galleries_by_vectors(lambda images: vectors[images], 10)(rows).shape == (4, 3)  # as many as there are
