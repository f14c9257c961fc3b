import os
import pickle
import random
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from file_damage import DAMAGE_KINDS, damage_content
from preloaded_python import find_program

from pipeline.runtime.compiled import compile_loop, compile_loop_in, exp, tanh
from pipeline.runtime.files import write_checked


@compile_loop
def compute_tanh(x, out):
    for i in range(len(x)):
        out[i] = tanh(x[i])


@compile_loop
def compute_exp(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


def test_tanh_in_single_precision_is_within_its_documented_error():
    x = np.concatenate([np.linspace(-12, 12, 200_001), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    out = np.empty_like(x)
    compute_tanh(x, out)
    assert np.abs(out - np.tanh(x.astype(np.float64))).max() < 3e-7
    assert (np.abs(out) <= 1 + 1e-7).all()
    compute_tanh(np.array([np.nan, np.inf, -np.inf], np.float32), out[:3])
    assert np.isnan(out[0])
    assert out[1:3] == pytest.approx([1, -1])


def test_exp_in_single_precision_is_within_its_documented_error():
    x = np.concatenate([np.linspace(-86.9, 88, 200_001), -np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    out = np.empty_like(x)
    compute_exp(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=2.5e-7)
    compute_exp(np.array([np.nan, -np.inf, -1000], np.float32), out[:3])
    assert np.isnan(out[0])
    assert (out[1:3] == 0).all()


def test_results_in_double_precision_are_numpys():
    x = np.linspace(-20, 20, 1001)
    out = np.empty_like(x)
    compute_tanh(x, out)
    np.testing.assert_allclose(out, np.tanh(x), rtol=1e-14)
    compute_exp(x, out)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-14)


def compute_sums(x, out):
    for i in range(len(x)):
        out[i] = tanh(x[i]) + exp(x[i])


def compute_products(x, out):
    for i in range(len(x)):
        out[i] = tanh(x[i]) * exp(x[i])


def run_in_child(work: Callable[[], bytes]) -> bytes:
    """Return the result of `work` in a fork; wrong machine code ends only the fork."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        content = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return content


def compute(function: Callable[..., None], folder: Path) -> bytes:
    """Return a loop's result, computed in a process that has not compiled the loop."""

    def run_loop() -> bytes:
        x = np.linspace(-3, 3, 100, dtype=np.float32)
        out = np.empty_like(x)
        compile_loop_in(folder, function)(x, out)
        return out.tobytes()

    return run_in_child(run_loop)


@pytest.mark.parametrize(
    "damage", [DAMAGE_KINDS[0], *(pytest.param(damage, marks=pytest.mark.slow) for damage in DAMAGE_KINDS[1:])]
)
def test_damaged_machine_code_is_compiled_again_to_the_same_results(tmp_path, damage):
    expected = compute(compute_sums, tmp_path)
    (path,) = tmp_path.iterdir()
    other = compute(compute_products, tmp_path / "other")
    assert len(other) == len(expected)
    assert other != expected
    (other_path,) = (tmp_path / "other").iterdir()
    whole, rng = path.read_bytes(), random.Random(damage)
    for _ in range(3):
        path.write_bytes(damage_content(damage, whole, [other_path.read_bytes()], rng))
        assert compute(compute_sums, tmp_path) == expected
        restored = path.stat()
        assert restored.st_size > 1000
        assert compute(compute_sums, tmp_path) == expected
        assert path.stat().st_ino == restored.st_ino, "the restored file is loaded and not compiled again"


@pytest.mark.parametrize(
    "content",
    [
        b"no pickle",
        *(pytest.param(each, marks=pytest.mark.slow) for each in (pickle.dumps(3), b"cnowhere\nnothing\n.")),
    ],
)
def test_machine_code_of_another_format_with_a_right_digest_is_compiled_again(tmp_path, content):
    expected = compute(compute_sums, tmp_path)
    (path,) = tmp_path.iterdir()
    write_checked(path, content)
    assert compute(compute_sums, tmp_path) == expected
    assert path.stat().st_size > 1000


def test_compiled_loops_are_cached_only_in_a_private_folder(tmp_path):
    code = (
        "import pipeline.channels.vocabulary_kernels, numpy\n"
        "from pipeline.runtime.compiled import _find_folder; print(_find_folder())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}

    def find_cache_folder(**variables: str) -> tuple[str, str]:
        command = [find_program("python"), "-c", code]
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True)
        return done.stdout.strip(), done.stderr

    folder, printed = find_cache_folder(XDG_CACHE_HOME=str(tmp_path))
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert printed == ""
    assert find_cache_folder(XDG_CACHE_HOME=str(tmp_path), NUMBA_CACHE_DIR="") == (folder, "")
    (tmp_path / "saywhich").chmod(0o777)
    for variables in ({"XDG_CACHE_HOME": str(tmp_path)}, {"NUMBA_CACHE_DIR": str(tmp_path / "saywhich")}):
        folder, printed = find_cache_folder(**variables)
        assert folder == "None"
        assert printed.startswith(f"warning: compiled loops are not kept: others can write to {tmp_path / 'saywhich'}")
        assert printed.endswith("; correct this, or set NUMBA_CACHE_DIR to a private folder\n")
        assert printed.count("\n") == 1
