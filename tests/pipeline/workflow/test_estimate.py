"""Estimated times of a grid on several machines, against sums by hand."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.workflow import estimate
from pipeline.workflow.grid_cells import CELL_STAGES, GridCell

GRID = [GridCell("luo", {"lambda": value}, 1) for value in (0.5, 0.6, 0.7, 0.8)]


def test_jobs_begin_when_their_predecessor_is_done_and_a_slot_is_free():
    """Three chains of 2 s and 1 s run in two slots: the first jobs at 0–2, 0–2, 2–4, the others at 2–3, 3–4, 4–5."""
    assert estimate.compute_makespan(3, [2, 1], slots=2) == 5
    assert estimate.compute_makespan(3, [2, 1], slots=1) == 9
    assert estimate.compute_makespan(3, [2, 1], slots=100) == 3
    assert estimate.compute_makespan(3, [2, 1], slots=100, overhead=0.5) == 4
    assert estimate.compute_makespan(0, [2, 1], slots=2) == 0


def write_times(cell: GridCell, *seconds: float, mebibytes: float = 512.0) -> None:
    for stage, each in zip(CELL_STAGES, seconds, strict=True):
        (cell.folder / f"{stage}.tsv").parent.mkdir(parents=True, exist_ok=True)
        (cell.folder / f"{stage}.tsv").write_text(f"s\th:m:s\tmax_rss\n{each}\t0:00:01\t{mebibytes}\n")
    (cell.folder / "evaluation").mkdir()
    (cell.folder / "evaluation/metrics.json").touch()


def test_missing_cells_and_measured_times_give_the_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_times(GRID[0], 100, 20, 30, mebibytes=2048)
    write_times(GRID[1], 0.5, 0.5, 0.5)  # this cell reused the files of another run
    lines = estimate.estimate_grid(GRID, machines=2, cores=1, memory=None, overhead=10, seconds=None).splitlines()
    assert lines == [
        "2 of 4 cells have no results",
        "finished cells measured here: 1; medians: train 100 s, adapt 20 s, evaluate 30 s; at most 2.1 GB",
        "2 machines, 2 jobs at once: 3 minutes",
        "work 5 minutes of one core; a cell alone 3 minutes; 83% of the slots' time is work",
    ]
    assert "2 machines, 4 jobs at once (by memory): " in estimate.estimate_grid(GRID, 2, 8, 5.0, 0.0, None)
    with pytest.raises(UserError, match=r"2\.1 GB of memory, which does not fit in the 1\.0 GB"):
        estimate.estimate_grid(GRID, 2, 8, 1.0, 0.0, None)


def test_the_costs_of_a_job_are_its_median_time_and_its_largest_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for cell, seconds, mebibytes in zip(GRID, (100, 110, 400), (500, 2000, 1000), strict=False):
        write_times(cell, seconds, 20, 30, mebibytes=mebibytes)
    costs = estimate.read_costs(GRID)
    assert costs is not None
    assert [(cost.seconds, cost.jobs) for cost in costs] == [(110, 3), (20, 3), (30, 3)]
    assert costs[0].gigabytes == pytest.approx(2000 * 2**20 / 1e9)


def test_the_estimate_without_finished_cells_uses_the_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert "4 machines, 4 jobs at once: 90 s" in estimate.estimate_grid(GRID, 4, 1, None, 0.0, 90.0)
    # three jobs of 30 s, each with 10 s of overhead
    assert "4 machines, 4 jobs at once: 2 minutes" in estimate.estimate_grid(GRID, 4, 1, None, 10.0, 90.0)
    unknown = estimate.estimate_grid(GRID, 4, 1, None, 0.0, None)
    assert unknown.startswith("4 of 4 cells have no results; the time of a cell is unknown: run one")


@pytest.mark.parametrize(
    ("sweep", "options", "message"),
    [
        ("{}", ["--memory", "-64"], "--memory -64: a number of gigabytes above 0 is expected"),
        ("{}", ["--memory", "nan"], "--memory nan: a number of gigabytes above 0 is expected"),
        ("{}", ["--overhead", "-1"], "--overhead -1: a number of seconds, 0 or more, is expected"),
        ("{seconds_per_cell: ten}", [], 'sweep.seconds_per_cell: "ten" is no number above 0'),
        ("[1]", [], "sweep: must be a mapping with seeds and grid, and is [1]"),
        ("{grid: {luo: fast}}", [], 'sweep.grid.luo: must map options to lists, and is "fast"'),
    ],
)
def test_a_mistake_is_reported_in_one_line(tmp_path, monkeypatch, capsys, sweep, options, message):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(f"methods: {{luo: {{from: luo}}}}\nsweep: {sweep}\n")
    assert estimate.main(options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
