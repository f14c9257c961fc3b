from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from pipeline.runtime import products


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
    products.choose([nn.Linear(8, 8)])
    assert products.chosen() == "own"
    assert not cache.exists()


@pytest.mark.parametrize(
    ("seconds", "errors", "wanted"),
    [((2.0, 1.0), (1e-5, 2e-5), "onednn"), ((2.0, 1.9), (1e-5, 1e-5), "own"), ((2.0, 1.0), (1e-5, 1e-3), "own")],
    ids=["faster and as exact", "hardly faster", "in bfloat16"],
)
def test_the_faster_one_if_it_is_as_exact(cache, monkeypatch, seconds, errors, wanted):
    times, off = (dict(zip(("highest", "medium"), each, strict=True)) for each in (seconds, errors))
    product = nn.functional.linear

    def wrong(x, weight):
        return product(x.double(), weight.double()) + off[torch.get_float32_matmul_precision()]

    monkeypatch.setattr(products, "_seconds", lambda x, weight: times[torch.get_float32_matmul_precision()])
    monkeypatch.setattr(products, "_product", wrong)
    products.choose(large())
    assert products.chosen() == wanted
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["weights"] == [[4000, 512], [4, 2000]]


def test_what_was_measured_is_kept(cache, monkeypatch):
    products.choose(large())
    first = products.chosen()
    monkeypatch.setattr(products, "_measured", lambda shapes: pytest.fail("measured again"))
    torch.set_float32_matmul_precision("high")
    products.choose(large())
    assert products.chosen() == first
    (file,) = cache.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"precision": "medium"}))
    products.choose(large())
    assert products.chosen() == "onednn"


def test_the_users_word_counts(cache, monkeypatch):
    monkeypatch.setenv("SAYWHICH_PRODUCTS", "medium")
    products.choose(large())
    assert products.chosen() == "onednn"
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_no_hindrance(cache):
    cache.write_text("a file where the folder should be")
    products.choose(large())
    assert products.chosen() in ("own", "onednn")
