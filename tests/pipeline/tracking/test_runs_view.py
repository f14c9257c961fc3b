"""The view with which MLflow's page opens: its columns are those of evaluations."""

from __future__ import annotations

import json

from mlflow.tracking import MlflowClient

from pipeline.evaluation.summary import summary_metrics
from pipeline.tracking.__main__ import main
from pipeline.tracking.runs_view import METRICS


def test_the_address_names_a_view_that_the_experiment_keeps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    assert main(["view"]) == 0
    address = capsys.readouterr().out.splitlines()[-1]
    experiment = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").get_experiment_by_name("saywhich")
    assert address == f"#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=results"
    view = json.loads(experiment.tags["mlflow.sharedViewState.results"])
    assert {"params.`method`", "params.`lambda`", "metrics.`CIDEr`", "metrics.`R_at_1 hard judge`"} <= set(
        view["selectedColumns"]
    )


def test_the_views_metrics_are_those_of_a_summary():
    judge = {"text_to_image": {"R@10": 1.0}, "galleries": {"neighbourhood": {"R@1": 1.0}}}
    found = {"language": {"CIDEr": 1.0}, "judges": dict.fromkeys(("own", "symbolic", "judge"), judge)}
    assert set(METRICS) <= set(summary_metrics(found))
