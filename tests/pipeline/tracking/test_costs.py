"""The table of costs, for runs with known numbers."""

import pytest
from recorded_runs import sync

from pipeline.tracking import recorder
from pipeline.tracking.__main__ import main
from pipeline.tracking.costs import format_cost_table, list_finished_runs


def make_run(name: str, seconds: float, processor: float | None = None, megabytes: float | None = None) -> dict:
    return {"name": name, "seconds": seconds, "processor": processor, "megabytes": megabytes}


def test_runs_of_a_stage_are_one_row_and_missing_numbers_are_dashes():
    runs = [
        make_run("train@luo lambda=0.5_seed=1", 3000, 2900, 1500),
        make_run("train@psst lambda=0.1_seed=1", 1000, 900, 2500),
        make_run("train@psst", 1500, 1800),
        make_run("pretrain@speaker", 50),
    ]
    assert format_cost_table(runs).splitlines()[2:] == [
        "| pretrain@speaker | 1 | 50.0 | 50.0 | – | – | 0.01 |",
        "| train | 3 | 1500.0 | 3000.0 | 1800.0 | 2.50 | 1.53 |",
    ]


@pytest.mark.usefixtures("manual_sending", "database")
def test_the_parent_of_a_profiles_runs_and_a_reused_run_are_not_counted(monkeypatch):
    monkeypatch.setenv("SAYWHICH_PROFILE", "scenes")
    with recorder.record_run("train@luo"):
        pass
    with recorder.record_run("train@mle", tags={"taken from": "data/models/luo"}):
        pass
    assert sync() == 0
    assert [run["name"] for run in list_finished_runs()] == ["train@luo"]


def test_a_database_that_cannot_be_read_is_reported_in_one_line(tmp_path, capsys):
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    for command in ("costs", "view"):
        assert main([command]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("MLflow's records cannot be read: ")
        assert "correct MLFLOW_TRACKING_URI" in line
