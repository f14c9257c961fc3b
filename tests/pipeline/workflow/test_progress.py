"""Lines of progress: what a stage does, and the time left at this machine's speed."""

from pathlib import Path

import yaml

from pipeline.workflow.progress import WORK, Progress, recorded_costs, with_grid

ROOT = Path(__file__).parents[3]


def test_a_line_has_the_place_the_work_and_the_time_left():
    progress = Progress(["prepare", "train@luo", "train@mle"], {"prepare": 40, "train": 120}, cores=2)
    assert progress.begin("prepare") == "[1/3] prepare: read the captions, build the vocabulary; about 2 min left"
    progress.end("prepare", 2)  # its outputs were there
    assert progress.begin("train@mle").endswith("; about 2 min left")
    progress.end("prepare", 80)  # twice the recorded time: a slower machine
    assert progress.begin("train@luo").endswith("train speaker and listener together by luo; about 4 min left")
    progress.end("train@luo", 240)
    progress.end("train@mle", 240)
    assert progress.begin("report").endswith("figures and the page")


def test_every_stage_has_a_description_and_recorded_costs():
    assert WORK.keys() == yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].keys()
    assert {"train", "features@main", "report"} <= recorded_costs(ROOT).keys()
    assert recorded_costs(ROOT / "nowhere") == {}
    assert with_grid({"train": 60.0, "adapt": 12.0, "evaluate": 18.0, "sweep": 9000.0}, 2)["sweep"] == 180
