"""Connection to MLflow, which finds, creates and logs runs.

In `pipeline`, only this module and `database` import mlflow.

Logging twice does no harm: MLflow keeps one copy of equal metrics, parameters, tags and artifacts, and an existing run
is found by its key.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError
from pipeline.tracking.database import create_database, make_sqlite_address, move_paths, parse_sqlite_path
from pipeline.tracking.spool import find_root, format_error_line, hold_file_lock

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "saywhich"
KEY = "saywhich.run"  # the tag with the run's key
PROFILE_KEY = "profile "  # beginning of the key of a profile's run, the parent of the runs of its stages
KIND = {"mlflow.experimentKind": "custom_model_development"}  # without it, MLflow opens its pages for traces of agents


@dataclass(frozen=True)
class Tracker:
    """Connection to MLflow: client, experiment id, and, for SQLite, the lock file of new runs and of `log`."""

    client: MlflowClient
    experiment: str
    lock: Path | None

    def find(self, key: str) -> str | None:
        """Return MLflow's id of the run with this key; None where there is none."""
        runs = self.client.search_runs([self.experiment], f"tags.`{KEY}` = '{key}'", max_results=1)
        return runs[0].info.run_id if runs else None

    def find_or_create(self, key: str, name: str, time: int, tags: Mapping[str, str], finished: bool = False) -> str:
        """Return MLflow's id of the run with this key; create a missing run, and end it at once if `finished`."""
        with hold_file_lock(self.lock):
            if run_id := self.find(key):
                return run_id
            run = self.client.create_run(self.experiment, start_time=time, tags={KEY: key, **tags}, run_name=name)
            if finished:
                self.client.set_terminated(run.info.run_id, "FINISHED", time)
            return str(run.info.run_id)

    def log(self, run_id: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Log the metrics, parameters, tags, data sets and models in a run's records."""
        from mlflow.entities import Metric, Param, RunTag

        metrics = [
            Metric(name, value, record["time"], record["step"])
            for record in records
            for name, value in record.get("metrics", {}).items()
        ]
        params = [Param(name, value) for record in records for name, value in record.get("params", {}).items()]
        latest = {name: value for record in records for name, value in record.get("tags", {}).items()}
        tags = [RunTag(name, value) for name, value in latest.items()]
        with hold_file_lock(self.lock):
            for start in range(0, len(metrics), 1000):  # within MLflow's limits for one request
                self.client.log_batch(run_id, metrics=metrics[start : start + 1000])
            for start in range(0, max(len(params), len(tags)), 50):
                self.client.log_batch(run_id, params=params[start : start + 50], tags=tags[start : start + 50])
            self._log_data_and_models(run_id, records)

    def log_artifact(self, run_id: str, folder: Path, artifact: str) -> None:
        """Log the file `artifact` of the artifacts in a run's `folder`."""
        parent = Path(artifact).parent.as_posix()
        self.client.log_artifact(run_id, str(folder / "artifacts" / artifact), None if parent == "." else parent)

    def _log_data_and_models(self, run_id: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Log inputs as datasets by path and digest, and the run's weights as a model with the run's name."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, LoggedModelStatus

        for datasets in (record["datasets"] for record in records if record.get("datasets")):
            self.client.log_inputs(
                run_id,
                [
                    DatasetInput(
                        # MLflow stores at most 36 characters of a digest
                        Dataset(path, digest[:32], "local", json.dumps({"uri": path})),
                        [InputTag("mlflow.data.context", "input")],
                    )
                    for path, digest in datasets.items()
                ],
            )
        for weights in (record["model"] for record in records if "model" in record):
            run = self.client.get_run(run_id)
            earlier_models = run.outputs.model_outputs if run.outputs else []
            if any(
                self.client.get_logged_model(model.model_id).params.get("path") == weights["path"]
                for model in earlier_models
            ):
                continue
            name = re.sub(r"[/:.%\"']", "_", run.info.run_name)
            model = self.client.create_logged_model(self.experiment, name, run_id, params=weights)
            self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
            self.client.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])

    def start_monitor(self, run_id: str) -> Any:
        """Start MLflow's monitor of processor, memory, disk, network and GPU; return None where it is off or fails."""
        if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true").lower() in ("false", "0"):
            return None
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        try:
            monitor = SystemMetricsMonitor(run_id, tracking_uri=self.client.tracking_uri)
            monitor.start()
        except Exception as error:
            remedy = "correct this, or set MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false"
            print(f"warning: no system metrics: {format_error_line(error)}; {remedy}", file=sys.stderr)
            return None
        return monitor


def finish_monitor(monitor: Any) -> None:
    """End the monitor of a run; a run shorter than the monitor's interval gets a sample, too."""
    monitor.finish()
    with suppress(Exception):
        monitor.collect_metrics()
        monitor.publish_metrics(monitor.aggregate_metrics())
        monitor.mlflow_logger.flush()


@contextmanager
def convert_errors() -> Iterator[None]:
    """Raise a UserError in place of an error of MLflow, its database or its server."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        remedy = "start MLflow's server, or correct MLFLOW_TRACKING_URI; without this variable, restore mlflow.db"
        raise UserError(f"MLflow's records cannot be read: {format_error_line(error)}; {remedy}") from error


def connect() -> Tracker:
    """Return the tracker of MLFLOW_TRACKING_URI, by default mlflow.db; create a missing database and experiment.

    MLFLOW_EXPERIMENT_NAME names the experiment. Where MLFLOW_TRACKING_URI is unset, the artifact paths of a copied
    repository are changed to those of the copy.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the sender retries
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    default = find_root() / "mlflow.db"
    uri = os.environ.get("MLFLOW_TRACKING_URI") or make_sqlite_address(default)
    database = default if uri == make_sqlite_address(default) else parse_sqlite_path(uri)
    lock = database.with_name(f"{database.name}.lock") if database else None
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    artifacts = None if uri.startswith(("http", "databricks")) else (find_root() / "mlartifacts").as_uri()
    with hold_file_lock(lock):  # two processes at once would fail to create the tables
        if database:
            create_database(database)
        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return Tracker(client, client.create_experiment(name, artifacts, KIND), lock)
            except MlflowException:  # on a server another process may have created it meanwhile
                experiment = client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        elif not os.environ.get("MLFLOW_TRACKING_URI") and database:
            location = experiment.artifact_location
            # other programs may have created the experiment with artifacts elsewhere
            if location != artifacts and re.fullmatch("file:.*/mlartifacts", location):
                move_paths(database, location, str(artifacts))
        return Tracker(client, experiment.experiment_id, lock)
