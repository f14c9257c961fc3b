"""Imports of the benchmarks, and the files and tests that `make bench` and `make fault-injection` name.

No benchmark runs here.
"""

import re
from importlib import import_module
from pathlib import Path

import pytest
import reliability

ROOT = Path(__file__).parents[1]
FILES = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}


@pytest.mark.parametrize("name", sorted(FILES))
def test_imports_of_benchmarks_exist(name):
    import_module(name)


@pytest.mark.parametrize(("files", "names"), [*reliability.HOSTILE.values(), *reliability.DIVERGING.values()])
def test_fault_injection_selects_tests_that_exist(files, names):
    tests = [name for file in files for name in re.findall(r"^def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)]
    assert tests
    assert [name for name in names if not any(name in test for test in tests)] == []


def test_make_bench_runs_existing_files():
    listed = re.search(r"^BENCHMARKS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed is not None
    assert set(listed[1].split()) <= FILES
    assert all(hasattr(import_module(name), "main") for name in listed[1].split())
