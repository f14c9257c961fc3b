"""The view with which MLflow's page opens by `make ui`: evaluations, with the settings and metrics that compare them.

MLflow keeps a shared view as a tag of the experiment, which the key in an address names.
"""

from __future__ import annotations

import json

from pipeline.tracking.recorder import record_name
from pipeline.tracking.sender import Tracker

KEY = "results"
SETTINGS = ("method", "lambda", "rho", "seed")  # parameters of every training and evaluation
METRICS = ("CIDEr", *(f"R@1 (hard) {judge}" for judge in ("own", "symbolic", "judge")), "R@10 own", "R@10 judge")


def save_view(tracker: Tracker) -> str:
    """Save the view in the tracker's experiment, and return its address below that of the server."""
    columns = [f"metrics.`{record_name(name)}`" for name in METRICS]
    view = {
        "searchFilter": "attributes.run_name LIKE 'evaluate@%'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": [*(f"params.`{name}`" for name in SETTINGS), *columns],
    }
    tracker.client.set_experiment_tag(tracker.experiment, f"mlflow.sharedViewState.{KEY}", json.dumps(view))
    return f"#/experiments/{tracker.experiment}/runs?viewStateShareKey={KEY}"
