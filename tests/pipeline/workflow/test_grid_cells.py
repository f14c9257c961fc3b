"""The cells of a grid, and errors in a grid."""

import os
from datetime import date
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.runtime import files
from pipeline.workflow import grid_cells


def test_cells_are_the_product_of_options_and_seeds():
    params = {
        "methods": {"a": {}, "b": {}},
        "sweep": {"seeds": [1, 2], "grid": {"a": {"lambda": [0.1, 0.2], "mix": ["token"], "eos": [True]}, "b": {}}},
    }
    cells = grid_cells.list_cells(params)
    assert [cell.name for cell in cells] == [
        "lambda=0.1_mix=token_eos=true_seed=1",
        "lambda=0.1_mix=token_eos=true_seed=2",
        "lambda=0.2_mix=token_eos=true_seed=1",
        "lambda=0.2_mix=token_eos=true_seed=2",
        "seed=1",
        "seed=2",
    ]
    assert cells[0].folder == Path("data/cells/a/lambda=0.1_mix=token_eos=true_seed=1")
    assert " ".join(cells[0].options) == (
        '--method a --set methods.a.lambda=0.1 --set methods.a.mix="token" --set methods.a.eos=true --seed 1'
    )


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not report allowed cores")
def test_as_many_cells_run_at_once_as_the_process_may_use_cores(monkeypatch):
    monkeypatch.delenv("SAYWHICH_CORES", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7})
    assert grid_cells.count_parallel_cells() == 3
    monkeypatch.setenv("SAYWHICH_CORES", "5")
    assert grid_cells.count_parallel_cells() == 5


def test_names_of_cells_are_unchanged_by_submission_to_a_cluster():
    from snakemake.target_jobs import parse_target_jobs_cli_args
    from snakemake_interface_executor_plugins.utils import TargetSpec, encode_target_jobs_cli_args

    cell = grid_cells.GridCell("a", {"lambda": 1e-05, "mix": "token, or not", "eos": True}, 7)
    job = TargetSpec("train", {"method": cell.method, "cell": cell.name})
    assert parse_target_jobs_cli_args(encode_target_jobs_cli_args([job])) == [job]


def test_nested_options_are_part_of_a_cells_name():
    params = {"methods": {"a": {}}, "sweep": {"seeds": [1], "grid": {"a": {"rerank": [{"samples": 5}]}}}}
    (cell,) = grid_cells.list_cells(params)
    assert cell.name == "rerank=samples-5_seed=1"
    assert cell.options == ["--method", "a", "--set", 'methods.a.rerank={"samples": 5}', "--seed", "1"]


def test_a_method_may_have_several_grids_and_seeds_of_its_own():
    grid = {"a": [{"lambda": [0.1, 0.2]}, {"lambda": [0.1], "rho": [0.5], "seed": [7]}], "b": {"seed": [3]}}
    cells = grid_cells.list_cells({"methods": {"a": {}, "b": {}}, "sweep": {"seeds": [1], "grid": grid}})
    assert [(cell.method, cell.name) for cell in cells] == [
        ("a", "lambda=0.1_seed=1"),
        ("a", "lambda=0.2_seed=1"),
        ("a", "lambda=0.1_rho=0.5_seed=7"),
        ("b", "seed=3"),
    ]


@pytest.mark.parametrize(
    ("grid", "line"),
    [
        ({"c": {}}, "sweep.grid.c: no such method"),
        (["a"], r'sweep.grid: must be a mapping of methods, and is \["a"\]'),
        (5, r"sweep.grid: must be a mapping of methods, and is 5"),
        ({"a": {"lambda": 0.1}}, r"sweep.grid.a.lambda: must be a list"),
        ({"a": {"lambda": []}}, r"sweep.grid.a.lambda: must be a list"),
        ({"a": {"lambda": [0.1, 0.10]}}, r"a lambda=0.1_seed=1 occurs twice"),
        (
            {"a": {"from": [date(2020, 1, 1)]}},
            r'sweep.grid.a.from: must be numbers, .*and is \["2020-01-01"\]; put texts',
        ),
    ],
)
def test_a_wrong_grid_is_reported_in_one_line(grid, line):
    with pytest.raises(UserError, match=line):
        grid_cells.list_cells({"methods": {"a": {}}, "sweep": {"seeds": [1], "grid": grid}})


@pytest.mark.parametrize("methods", [5, ["a"]])
def test_methods_that_are_no_mapping_are_reported_in_one_line(methods):
    with pytest.raises(UserError, match=r"params.yaml: methods: must be a mapping of methods, and is [5\[]"):
        grid_cells.list_cells({"methods": methods, "sweep": {"seeds": [1], "grid": {"a": {}}}})


def test_a_large_file_is_read_again_when_it_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "LARGE", 3)
    path = Path("features.h5")
    path.write_text("abcd")
    first = grid_cells.compute_digests([str(path)])
    monkeypatch.setattr(files, "compute_sha256", lambda path: pytest.fail("the unchanged file was read again"))
    assert grid_cells.compute_digests([str(path)]) == first
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "LARGE", 3)
    path.write_text("abce")
    assert grid_cells.compute_digests([str(path)]) != first
    assert grid_cells.compute_digests(["nowhere"]) == {"nowhere": "missing"}


def test_missing_seeds_are_reported_at_their_key():
    params = {"methods": {"a": {}}, "sweep": {"grid": {"a": {}}}}
    with pytest.raises(UserError, match=r"sweep\.seeds: must be a list of values, as in \[1, 2\], and is \[\]"):
        grid_cells.list_cells(params)
    params["sweep"] = {"seeds": [1], "grid": {"a": {"seed": 3}}}
    with pytest.raises(UserError, match=r"sweep\.grid\.a\.seed: must be a list of values, .*, and is 3"):
        grid_cells.list_cells(params)


@pytest.mark.parametrize("content", [b'{"epoch": 1}\n{"epo', b"\xff\n", b"[1]\n"])
def test_a_damaged_history_of_a_cell_is_reported_in_one_line(tmp_path, monkeypatch, content):
    """The header of the weights holds the history's digest; without the weights only the parser detects the damage."""
    monkeypatch.chdir(tmp_path)
    cell = grid_cells.GridCell("a", {}, 1)
    cell.folder.mkdir(parents=True)
    (cell.folder / "history.jsonl").write_bytes(content)
    with pytest.raises(
        UserError, match=r"history.jsonl: a line is no JSON object \(.*; delete data/cells/a/seed=1 and"
    ):
        grid_cells.gather_results([cell], Path("out"))
