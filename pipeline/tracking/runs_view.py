"""MLflow pages whose addresses `make ui` prints: a table of evaluations, and a comparison of the last profile's runs.

MLflow stores a shared view as a tag of the experiment; the address contains the tag's key.
"""

from __future__ import annotations

import json
from urllib.parse import quote

from pipeline.tracking.recorder import format_mlflow_name
from pipeline.tracking.tracker import Tracker

KEY = "results"
EVALUATIONS = "attributes.run_name LIKE 'evaluate@%'"
SETTINGS = ("method", "lambda", "rho", "seed")  # parameters of runs; some methods lack lambda or rho
METRICS = ("CIDEr", *(f"R@1 (hard) {judge}" for judge in ("own", "symbolic", "judge")), "R@10 own", "R@10 judge")


def save_view(tracker: Tracker) -> str:
    """Save the table of evaluations as a shared view, and return its address relative to the server's address."""
    columns = [f"metrics.`{format_mlflow_name(name)}`" for name in METRICS]
    view = {
        "searchFilter": EVALUATIONS,
        "orderByKey": columns[METRICS.index("R@1 (hard) judge")],  # by time, MLflow would fold runs below their parents
        "orderByAsc": False,
        "selectedColumns": ["tags.`profile`", *(f"params.`{name}`" for name in SETTINGS), *columns],
    }
    tracker.client.set_experiment_tag(tracker.experiment, f"mlflow.sharedViewState.{KEY}", json.dumps(view))
    return f"#/experiments/{tracker.experiment}/runs?viewStateShareKey={KEY}"


def find_comparison_address(tracker: Tracker) -> str:
    """Return the address of MLflow's comparison of each method's last evaluation in the last evaluated profile.

    Cells of a grid, whose names have a second word, are omitted. Returns "" for fewer than two runs.
    """
    order = ["attributes.start_time DESC"]
    runs = tracker.client.search_runs([tracker.experiment], EVALUATIONS, order_by=order, max_results=1000)
    profile = runs[0].data.tags.get("profile") if runs else None
    last_run_ids: dict[str, str] = {}
    for run in runs:
        if run.data.tags.get("profile") == profile and " " not in run.info.run_name:
            last_run_ids.setdefault(run.info.run_name, run.info.run_id)
    if len(last_run_ids) < 2:
        return ""
    encoded_ids = (json.dumps(list(last_run_ids.values())), json.dumps([tracker.experiment]))
    return "#/compare-runs?runs={}&experiments={}".format(*map(quote, encoded_ids))
