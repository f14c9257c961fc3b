"""The content of the spool and of the MLflow database in the working folder."""

from pathlib import Path

from pipeline.tracking import sender
from pipeline.tracking.tracker import connect


def list_waiting_runs() -> list[Path]:
    return sorted(records.parent for records in Path("mlflow-spool").glob("*/records.jsonl"))


def sync() -> int:
    return sender.sync(Path("mlflow-spool"))


def find_runs() -> dict:
    """Return MLflow's runs by name."""
    tracker = connect()
    return {run.info.run_name: run for run in tracker.client.search_runs([tracker.experiment])}


def read_history(run, metric: str) -> list[tuple[int, float]]:
    entries = connect().client.get_metric_history(run.info.run_id, metric)
    return sorted((entry.step, entry.value) for entry in entries)


def find_artifact(run, path: str) -> Path:
    return Path(run.info.artifact_uri.removeprefix("file://")) / path
