"""Imports of the benchmarks, the files and tests that `make bench` and `make fault-injection` name, and their tables.

No benchmark runs here.
"""

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import reliability
from stage_memory import measure_process

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


def test_the_table_of_fault_injection_has_a_new_row_and_recorded_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reliability, "OUT", tmp_path)
    result = reliability.TrialResult("damaged files", 1200, 1199, "1 × not named")
    content = {"command": "make fault-injection", "commit": "abc", "lines": [vars(result)]}
    (tmp_path / "damage.json").write_text(json.dumps(content))
    reliability.show()
    printed = capsys.readouterr().out
    assert "| damaged files" in printed
    assert re.search(r"\| *1,200 \| *1,199 \| 1 × not named", printed)
    assert "ROWS=memory" in printed
    assert (tmp_path / "reliability.md").read_text().strip() == printed.strip()


def test_the_peak_memory_of_a_process_does_not_include_its_parents(tmp_path):
    array = np.ones(2**26)  # 512 MiB
    peak = measure_process(tmp_path, ["this"])
    assert array[-1] == 1
    assert 5 < peak < 100  # MiB
