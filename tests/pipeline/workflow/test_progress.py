"""Lines of progress: the work of a stage, and the time left at this machine's speed."""

from pathlib import Path

import yaml

from pipeline.workflow.progress import DVC_SECONDS, WORK, Progress, add_grid_cost, read_recorded_costs

ROOT = Path(__file__).parents[3]


def test_a_line_has_the_place_the_work_and_the_time_left():
    waits = {"prepare": set(), "train@luo": {"prepare"}, "train@mle": {"prepare"}, "report": {"train@luo", "train@mle"}}
    costs = {"prepare": 50 - DVC_SECONDS, "train": 120 - DVC_SECONDS}
    assert Progress(waits, costs, max_parallel=1).begin("prepare", 0).endswith("; about 5 min left"), "50 + 120 + 120 s"
    progress = Progress(waits, costs, max_parallel=3)
    line = "[1/4] prepare: read the captions, build the vocabulary; about 3 min left"
    assert progress.begin("prepare", 1000) == line, "50 s for one stage, and 120 s for two at once"
    progress.end("prepare", 1002)  # its outputs existed already
    assert progress.begin("train@mle", 1002).endswith("; about 2 min left")
    assert progress.begin("train@luo", 1032).endswith("together by luo; about 2 min left")
    progress.end("train@luo", 1062)
    progress.end("train@mle", 1062)
    assert progress.begin("report", 1062).endswith("figures and the page")
    assert Progress(waits, {}, max_parallel=2).begin("prepare", 0).endswith("the vocabulary"), "no recorded costs"


def test_the_time_left_is_scaled_by_the_speed_of_this_machine():
    waits = {"prepare": set(), "train@luo": {"prepare"}, "train@mle": {"prepare"}}
    progress = Progress(waits, {"prepare": 50 - DVC_SECONDS, "train": 120 - DVC_SECONDS}, max_parallel=2)
    progress.begin("prepare", 0)
    progress.end("prepare", 100)  # twice the recorded time
    assert progress.begin("train@luo", 100).endswith("; about 4 min left")


def test_thirty_recorded_seconds_are_too_few_to_measure_the_speed():
    waits = {"prepare": set(), "train@luo": {"prepare"}}
    progress = Progress(waits, {"prepare": 30 - DVC_SECONDS, "train": 120 - DVC_SECONDS}, max_parallel=1)
    progress.begin("prepare", 0)
    progress.end("prepare", 90)
    assert progress.begin("train@luo", 90).endswith("; about 2 min left")


def test_the_time_left_excludes_the_time_that_a_stage_has_run():
    waits = {"train@luo": set(), "train@mle": set(), "evaluate@mle": {"train@mle"}, "evaluate@luo": {"train@luo"}}
    costs = {"train@luo": 600 - DVC_SECONDS, "train@mle": 60 - DVC_SECONDS, "evaluate": 120 - DVC_SECONDS}
    progress = Progress(waits, costs, max_parallel=2)
    assert progress.begin("train@luo", 0).endswith("; about 12 min left")
    progress.begin("train@mle", 0)
    progress.end("train@mle", 60)
    assert progress.begin("evaluate@mle", 300).endswith("; about 7 min left"), "600 - 300 and 120 s"
    progress.end("evaluate@mle", 420)
    assert progress.begin("evaluate@luo", 1000).endswith("; about 2 min left"), "0 s of the stage that began at 0 s"


def test_a_stage_without_a_recorded_cost_does_not_change_the_speed():
    waits = {"draw@films": set(), "features@main": {"draw@films"}, "train@luo": {"features@main"}}
    progress = Progress(waits, {"features@main": 120 - DVC_SECONDS, "train": 240 - DVC_SECONDS}, max_parallel=1)
    progress.begin("draw@films", 0)
    progress.end("draw@films", 3600)
    progress.begin("features@main", 3600)
    progress.end("features@main", 3720)
    assert progress.begin("train@luo", 3720).endswith("; about 4 min left")


def test_stages_on_which_a_longer_chain_waits_begin_first():
    waits = {
        "evaluate@mle": set(),
        "adapt@luo": set(),
        "evaluate@luo": {"adapt@luo"},
        "sweep": {"evaluate@mle", "evaluate@luo"},
        "ui": set(),
    }
    costs = {"evaluate": 40 - DVC_SECONDS, "adapt": 20 - DVC_SECONDS, "sweep": 20 - DVC_SECONDS}
    progress = Progress(waits, costs, max_parallel=1)
    assert progress.order_by_chain(["ui", "evaluate@mle", "adapt@luo"]) == ["adapt@luo", "evaluate@mle", "ui"]
    assert progress.order_by_chain(["evaluate@mle", "evaluate@luo"]) == ["evaluate@mle", "evaluate@luo"], "equal costs"
    assert progress.order_by_chain(["evaluate@luo", "evaluate@mle"]) == ["evaluate@luo", "evaluate@mle"], "equal costs"


def test_every_stage_has_a_description_and_recorded_costs():
    assert WORK.keys() == yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].keys()
    assert {"train", "features@main", "report"} <= read_recorded_costs(ROOT).keys()
    assert read_recorded_costs(ROOT / "nowhere") == {}
    costs = {"train": 60.0, "adapt": 12.0, "evaluate": 18.0, "sweep": 9000.0}
    assert add_grid_cost(costs, 6, max_parallel=3)["sweep"] == 180
