"""The pages of MLflow whose addresses `make ui` prints."""

import json
from urllib.parse import parse_qs

from mlflow.tracking import MlflowClient
from recorded_runs import sync

from pipeline.evaluation.summary import select_summary_metrics
from pipeline.tracking import recorder
from pipeline.tracking.__main__ import main
from pipeline.tracking.runs_view import METRICS


def read_view_lines(capsys) -> list[str]:
    """Return the lines that `make ui` prints."""
    assert main(["view"]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_address_names_a_view_that_the_experiment_keeps(database, capsys):
    (line,) = read_view_lines(capsys)
    experiment = MlflowClient(f"sqlite:///{database}").get_experiment_by_name("saywhich")
    address = f"http://127.0.0.1:5000/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=results"
    assert line == f"The evaluations, with their settings and recalls: {address}"
    view = json.loads(experiment.tags["mlflow.sharedViewState.results"])
    assert {"tags.`profile`", "params.`method`", "params.`lambda`", "metrics.`CIDEr`"} <= set(view["selectedColumns"])
    assert view["orderByKey"] == "metrics.`R_at_1 hard judge`"
    assert view["orderByKey"] in view["selectedColumns"]


def test_the_last_evaluations_of_a_profile_are_compared(manual_sending, database, monkeypatch, capsys):
    recorded = [
        ("evaluate@mle", "scenes"),
        ("evaluate@mle", "films"),
        ("train@luo", "films"),
        ("evaluate@luo", "films"),
    ]
    recorded += [("evaluate@luo lambda=0.5_seed=1", "films")]
    for n, (name, profile) in enumerate([*recorded, ("evaluate@mle", "films")]):
        monkeypatch.setenv("SAYWHICH_PROFILE", profile)
        monkeypatch.setattr(recorder, "get_milliseconds", lambda n=n: 1000 + n)
        with recorder.record_run(name, {"n": n}):
            pass
    assert sync() == 0
    capsys.readouterr()
    _, line = read_view_lines(capsys)
    assert line.startswith("The last evaluations side by side: http://127.0.0.1:5000/#/compare-runs?runs=")
    query = parse_qs(line.partition("?")[2])
    client = MlflowClient(f"sqlite:///{database}")
    compared = [client.get_run(run).data.params["n"] for run in json.loads(query["runs"][0])]
    assert sorted(compared) == ["3", "5"]
    assert json.loads(query["experiments"][0]) == [client.get_experiment_by_name("saywhich").experiment_id]


def test_the_views_metrics_are_those_of_a_summary():
    judge = {"text_to_image": {"R@10": 1.0}, "galleries": {"neighbourhood": {"R@1": 1.0}}}
    found = {"language": {"CIDEr": 1.0}, "judges": dict.fromkeys(("own", "symbolic", "judge"), judge)}
    assert set(METRICS) <= set(select_summary_metrics(found))
