from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from pipeline.errors import UserError
from pipeline.runtime import products

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SAYWHICH_PRODUCTS", raising=False)
    yield tmp_path / "saywhich"
    torch.set_float32_matmul_precision("highest")


def large():
    return [nn.Linear(512, 4000), nn.Linear(2000, 4)]


def test_small_models_keep_torchs_own_and_nothing_is_measured(cache):
    torch.set_float32_matmul_precision("medium")
    products.choose([nn.Linear(8, 8)], CPU)
    assert products.chosen() == "highest"
    assert not cache.exists()


@pytest.mark.parametrize(
    ("seconds", "errors", "wanted"),
    [
        ((2.0, 1.0), (1e-5, 2e-5), "medium"),
        ((2.0, 1.9), (1e-5, 1e-5), "highest"),
        ((2.0, 1.0), (1e-5, 1e-3), "highest"),
    ],
    ids=["faster and as exact", "hardly faster", "in bfloat16"],
)
def test_the_faster_one_if_it_is_as_exact(cache, monkeypatch, seconds, errors, wanted):
    times, off = (dict(zip(("highest", "medium"), each, strict=True)) for each in (seconds, errors))
    product = nn.functional.linear

    def wrong(x, weight):
        return product(x.double(), weight.double()) + off[torch.get_float32_matmul_precision()]

    monkeypatch.setattr(products, "_seconds", lambda x, weight: times[torch.get_float32_matmul_precision()])
    monkeypatch.setattr(products, "_product", wrong)
    products.choose(large(), CPU)
    assert products.chosen() == wanted
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["weights"] == [[4000, 512], [4, 2000]]


def test_what_was_measured_is_kept(cache, monkeypatch):
    products.choose(large(), CPU)
    first = products.chosen()
    monkeypatch.setattr(products, "_measured", lambda shapes: pytest.fail("measured again"))
    torch.set_float32_matmul_precision("high")
    products.choose(large(), CPU)
    assert products.chosen() == first
    (file,) = cache.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"precision": "medium"}))
    products.choose(large(), CPU)
    assert products.chosen() == "medium"


@pytest.mark.parametrize("broken", ["", '{"precision": ', "[]", '{"precision": "fast"}'])
def test_a_broken_file_is_measured_and_written_again(cache, broken):
    products.choose(large(), CPU)
    (file,) = cache.iterdir()
    file.write_text(broken)
    products.choose(large(), CPU)
    assert json.loads(file.read_text())["precision"] == products.chosen()


def test_the_users_word_counts(cache, monkeypatch):
    monkeypatch.setenv("SAYWHICH_PRODUCTS", "medium")
    products.choose(large(), CPU)
    assert products.chosen() == "medium"
    assert not cache.exists()
    monkeypatch.setenv("SAYWHICH_PRODUCTS", "high")
    products.choose(large(), torch.device("cuda"))
    assert products.chosen() == "high"
    monkeypatch.setenv("SAYWHICH_PRODUCTS", "fast")
    with pytest.raises(UserError, match="SAYWHICH_PRODUCTS=fast: one of highest, high, medium"):
        products.choose(large(), CPU)


def test_a_gpu_keeps_torchs_own(cache):
    products.choose(large(), torch.device("cuda"))
    assert products.chosen() == "highest"
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_no_hindrance(cache):
    cache.write_text("a file where the folder should be")
    products.choose(large(), CPU)
    assert products.chosen() in ("highest", "medium")
