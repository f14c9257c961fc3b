"""The page of costs, of runs whose figures are known."""

from pipeline.tracking.costs import table


def run(name: str, seconds: float, processor: float | None = None, megabytes: float | None = None) -> dict:
    return {"name": name, "seconds": seconds, "processor": processor, "megabytes": megabytes}


def test_runs_of_a_stage_are_one_row_and_what_was_not_recorded_is_a_dash():
    runs = [
        run("train@luo lambda=0.5_seed=1", 3000, 2900, 1500),
        run("train@psst lambda=0.1_seed=1", 1000, 900, 2500),
        run("train@psst", 2000, 1800),
        run("pretrain@speaker", 50),
    ]
    assert table(runs).splitlines()[2:] == [
        "| pretrain@speaker | 1 | 50.0 | 50.0 | – | – | 0.01 |",
        "| train | 3 | 2000.0 | 3000.0 | 1800.0 | 2.50 | 1.67 |",
    ]
