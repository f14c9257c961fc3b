"""Imports of the benchmarks, their tables, and the files and tests that `make bench` and `make fault-injection` name.

No benchmark runs here.
"""

import json
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import cluster
import feature_reading
import numpy as np
import pytest
import reliability
from stage_memory import measure_process

ROOT = Path(__file__).parents[1]
FILES = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}


@pytest.mark.parametrize("name", sorted(FILES))
def test_imports_of_benchmarks_exist(name):
    import_module(name)


@pytest.mark.parametrize(
    ("files", "names"),
    [
        *reliability.HOSTILE.values(),
        *reliability.DIVERGING.values(),
        (("tests/test_fuzz.py",), reliability.RANDOM),
    ],
)
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


def test_a_single_batch_of_features_has_no_other_waits():
    assert [len(rows) for rows in feature_reading.shuffle_batches(100, 128, 5)] == [100]
    assert [len(rows) for rows in feature_reading.shuffle_batches(300, 128, 5)] == [128, 128]
    assert feature_reading.format_waits([0.0186]) == ("18.6", "–", "–")
    assert feature_reading.format_waits([0.0186, 0.001, 0.003]) == ("18.6", "2.00", "3.0")


def test_the_memory_of_plans_is_in_gigabytes(tmp_path, monkeypatch):
    usage = SimpleNamespace(ru_utime=1.0, ru_stime=1.0, ru_maxrss=2_000_000)  # KiB
    monkeypatch.setattr(cluster.resource, "getrusage", lambda _: usage)
    monkeypatch.setattr(cluster.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    assert cluster.run_snakemake(tmp_path, environment={})[2] == 2.048


def test_the_peak_memory_of_a_process_does_not_include_its_parents(tmp_path):
    array = np.ones(2**26)  # 512 MiB
    peak = measure_process(tmp_path, ["this"])
    assert array[-1] == 1
    assert 5 < peak < 100  # MB
