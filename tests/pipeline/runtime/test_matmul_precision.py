from __future__ import annotations

import json
import random

import pytest
import torch
from file_damage import DAMAGE_KINDS, damage_content
from torch import nn

from pipeline.errors import UserError
from pipeline.runtime import matmul_precision
from pipeline.runtime.files import read_checked, write_checked

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SAYWHICH_MATMUL_PRECISION", raising=False)
    recurrent_precision = torch.backends.cudnn.rnn.fp32_precision
    yield tmp_path / "saywhich/products"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.rnn.fp32_precision = recurrent_precision


def make_large_layers():
    return [nn.Linear(512, 4000), nn.Linear(2000, 4)]


def test_small_models_keep_torchs_library_without_a_measurement(cache):
    torch.set_float32_matmul_precision("medium")
    matmul_precision.choose_precision([nn.Linear(8, 8)], CPU)
    assert matmul_precision.get_current_precision() == "highest"
    assert not cache.exists()


@pytest.mark.parametrize(
    ("seconds", "errors", "expected"),
    [
        ((2.0, 1.0), (1e-5, 2e-5), "medium"),
        ((2.0, 1.9), (1e-5, 1e-5), "highest"),
        ((2.0, 1.0), (1e-5, 1e-3), "highest"),
    ],
    ids=["faster and as exact", "hardly faster", "in bfloat16"],
)
def test_the_faster_library_is_chosen_if_it_is_as_exact(cache, monkeypatch, seconds, errors, expected):
    times, shifts = (dict(zip(("highest", "medium"), each, strict=True)) for each in (seconds, errors))
    product = nn.functional.linear

    def multiply_with_error(x, weight):
        return product(x.double(), weight.double()) + shifts[torch.get_float32_matmul_precision()]

    monkeypatch.setattr(
        matmul_precision, "_time_product", lambda x, weight: times[torch.get_float32_matmul_precision()]
    )
    monkeypatch.setattr(matmul_precision, "_multiply", multiply_with_error)
    matmul_precision.choose_precision(make_large_layers(), CPU)
    assert matmul_precision.get_current_precision() == expected
    (file,) = cache.iterdir()
    assert json.loads(read_checked(file))["weights"] == [[4000, 512], [4, 2000]]


def test_the_measured_choice_is_cached(cache, monkeypatch):
    matmul_precision.choose_precision(make_large_layers(), CPU)
    first = matmul_precision.get_current_precision()
    monkeypatch.setattr(matmul_precision, "_measure", lambda shapes: pytest.fail("measured again"))
    torch.set_float32_matmul_precision("high")
    matmul_precision.choose_precision(make_large_layers(), CPU)
    assert matmul_precision.get_current_precision() == first
    (file,) = cache.iterdir()
    write_checked(file, json.dumps(json.loads(read_checked(file)) | {"precision": "medium"}).encode())
    matmul_precision.choose_precision(make_large_layers(), CPU)
    assert matmul_precision.get_current_precision() == "medium"


@pytest.mark.parametrize("damage", ["another choice", *DAMAGE_KINDS])
def test_a_damaged_cache_or_one_of_another_machine_is_measured_again(cache, monkeypatch, damage):
    monkeypatch.setattr(matmul_precision, "_measure", lambda shapes: {"precision": "highest"})
    matmul_precision.choose_precision(make_large_layers(), CPU)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    write_checked(file, json.dumps(json.loads(read_checked(file)) | {"cpu": "other", "precision": "medium"}).encode())
    other = file.read_bytes()
    rng = random.Random(damage)
    for _ in range(9):
        content = (
            whole.replace(b"highest", b"medium ")
            if damage == "another choice"
            else damage_content(damage, whole, [other], rng)
        )
        file.write_bytes(content)
        matmul_precision.choose_precision(make_large_layers(), CPU)
        assert matmul_precision.get_current_precision() == "highest"
        assert file.read_bytes() == whole


def test_a_folder_writable_by_others_is_reported_and_not_used(cache, capsys):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    matmul_precision.choose_precision(make_large_layers(), CPU)
    assert list(cache.iterdir()) == []
    printed = capsys.readouterr().err
    refusal = f"warning: the choice of a library for matrix products is not kept: others can write to {cache}"
    assert printed.startswith(refusal)
    assert printed.endswith("; correct this, or set XDG_CACHE_HOME to a private folder\n")
    assert printed.count("\n") == 1


def test_the_environment_variable_sets_the_precision(cache, monkeypatch):
    monkeypatch.setenv("SAYWHICH_MATMUL_PRECISION", "medium")
    matmul_precision.choose_precision(make_large_layers(), CPU)
    assert matmul_precision.get_current_precision() == "medium"
    assert not cache.exists()
    monkeypatch.setenv("SAYWHICH_MATMUL_PRECISION", "high")
    torch.backends.cudnn.rnn.fp32_precision = "ieee"
    matmul_precision.choose_precision(make_large_layers(), torch.device("cuda"))
    assert matmul_precision.get_current_precision() == "high"
    assert torch.backends.cudnn.rnn.fp32_precision == "tf32"
    monkeypatch.setenv("SAYWHICH_MATMUL_PRECISION", "fast")
    with pytest.raises(
        UserError, match="SAYWHICH_MATMUL_PRECISION=fast: expected highest, high or medium; set it to one of"
    ):
        matmul_precision.choose_precision(make_large_layers(), CPU)


def test_a_gpu_keeps_torchs_library(cache):
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    matmul_precision.choose_precision(make_large_layers(), torch.device("cuda"))
    assert matmul_precision.get_current_precision() == "highest"
    assert torch.backends.cudnn.rnn.fp32_precision == "ieee"
    assert not cache.exists()


def test_an_unwritable_cache_is_ignored(cache, monkeypatch):
    cache.parent.write_text("a file where the folder should be")
    monkeypatch.setattr(matmul_precision, "_measure", lambda shapes: {"precision": "medium"})
    matmul_precision.choose_precision(make_large_layers(), CPU)
    assert matmul_precision.get_current_precision() == "medium"
