"""The pages on methods and metrics, followed literally in a toy world, give the results that they state."""

import csv
import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from how_to_pages import apply_page, merge_settings, read_settings
from toy_world import succeed

METHOD, METRIC, TITLE = "joint_reinforce", "Word-F1", "REINFORCE, joint"
INTERVALS = """
from pathlib import Path
from pipeline.analysis.bootstrap import compute_interval, resample
from pipeline.analysis.results import read_results

results = read_results(Path("data/sweep"), [])
values = resample(results, 100).get_values(results.runs[0], "language", "Word-F1")
print(results.runs[0].value("test", "language", "Word-F1"), *compute_interval(values))
"""
REWARD = """
import torch
from pipeline.config.load import load
from pipeline.metrics.text_rewards import TextScorer
from pipeline.scores.rewards import mix_metrics
from pathlib import Path

override = "methods.sll={from: sle, speaker: speaker, reward: {Word-F1: 1.0}}"
score = mix_metrics(load(Path("params.yaml"), [override]).methods["sll"]["reward"], None, None)
texts = TextScorer(lambda row: " ".join("abc"[n] for n in row), lambda image: ["a b", "c"])
print(*texts.score(score.metric, torch.tensor([[0, 1], [2, 0]]), torch.tensor([0, 0])).tolist())
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def followed_pages(toy_repository, tmp_path_factory) -> tuple[Path, list[str]]:
    """Return a copy of the finished toy world in which both pages were followed, and the stages that DVC then ran."""
    folder = Path(shutil.copytree(toy_repository[0], tmp_path_factory.mktemp("how to") / "world", symlinks=True))
    params = json.loads((folder / "params.yaml").read_text())
    params["sweep"]["grid"] = {}
    for page, files in (
        ("method", [f"pipeline/methods/{METHOD}.py"]),
        ("metric", ["pipeline/metrics/registry.py", "pipeline/metrics/word_f1.py"]),
    ):
        assert apply_page(page, folder) == files
        params = merge_settings(params, read_settings(page, folder.parent))
    (folder / "params.yaml").write_text(json.dumps(params))
    lines = succeed(folder, "dvc", "repro").splitlines()
    return folder, [line.split("'")[1] for line in lines if line.startswith("Running stage")]


def test_the_method_alone_is_trained(followed_pages):
    folder, stages = followed_pages
    assert [stage for stage in stages if stage.startswith(("pretrain", "train", "adapt"))] == [
        f"train@{METHOD}",
        f"adapt@{METHOD}",
    ]
    cells = json.loads((folder / "data/sweep/cells.json").read_text())
    assert [(cell["method"], cell["settings"]["lambda"]) for cell in cells] == [(METHOD, 0.7), (METHOD, 0.9)]


def test_the_method_has_its_title_and_paper_in_curves_tables_and_report(followed_pages):
    report = followed_pages[0] / "data/report"
    for name in ("table.md", "tables.md", "report.html"):
        assert TITLE in (report / name).read_text(encoding="utf-8"), name
    assert f"{TITLE} (Williams, 1992)" in (report / "tables.md").read_text(encoding="utf-8")
    assert f"{TITLE} (Williams, 1992)" in (report / "report.html").read_text(encoding="utf-8")
    rows = csv.DictReader((report / "curve.csv").read_text(encoding="utf-8").splitlines())
    assert [(row["lambda"], row["split"]) for row in rows if row["method"] == METHOD] == [
        (value, split) for value in ("0.7", "0.9") for split in ("val", "test")
    ]
    crossed = json.loads((followed_pages[0] / "data/crossed/crossed.json").read_text())
    assert METHOD in crossed["captions"]


def test_the_metric_is_in_metrics_captions_and_tables(followed_pages):
    folder = followed_pages[0]
    metrics = json.loads((folder / f"data/evaluation/{METHOD}/metrics.json").read_text())
    captions = pq.read_table(folder / f"data/evaluation/{METHOD}/captions.parquet").to_pydict()
    for split in ("val", "test"):
        values = [value for value, name in zip(captions[METRIC], captions["split"], strict=True) if name == split]
        assert metrics[split]["language"][METRIC] == pytest.approx(sum(values) / len(values))
        assert 0 < metrics[split]["language"][METRIC] <= 1
    for name in ("tables.md", "report.html", "curve.csv"):
        assert METRIC in (folder / "data/report" / name).read_text(encoding="utf-8"), name


def test_the_metric_has_an_interval(followed_pages):
    value, low, high = map(float, succeed(followed_pages[0], sys.executable, "-c", INTERVALS).split())
    assert low < value < high


def test_the_metric_can_be_a_reward(followed_pages):
    assert list(map(float, succeed(followed_pages[0], sys.executable, "-c", REWARD).split())) == [
        1.0,
        pytest.approx(2 / 3),
    ]
