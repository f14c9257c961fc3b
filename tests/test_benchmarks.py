"""Imports of the benchmarks, and the files that make bench runs; no benchmark runs here."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}


@pytest.mark.parametrize("name", sorted(FILES))
def test_imports_of_benchmarks_exist(name):
    import_module(name)


def test_make_bench_runs_existing_files():
    listed = re.search(r"^BENCHMARKS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed is not None
    assert set(listed[1].split()) <= FILES
    assert all(hasattr(import_module(name), "main") for name in listed[1].split())
