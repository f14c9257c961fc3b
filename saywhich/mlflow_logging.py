"""Logging of exported models to MLflow, with a signature; `mlflow models serve -m …` serves them."""

from __future__ import annotations

import os
import re
import warnings
from importlib.metadata import requires
from pathlib import Path

import pipeline
import saywhich
from pipeline.tracking.sender import connect

SERVED = Path(__file__).with_name("mlflow_model.py")


def log_to_mlflow(folder: Path, name: str) -> str:
    """Log the exported model in `folder`, with the code that loads it, in a new run; return its MLflow URI."""
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    tracker = connect()
    mlflow.set_tracking_uri(tracker.client.tracking_uri)
    signature = ModelSignature(
        Schema([ColSpec(DataType.binary, "image")]),
        Schema([ColSpec(DataType.string, "caption")]),
        ParamSchema([ParamSpec("beam", DataType.long, 5)]),
    )
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    with mlflow.start_run(experiment_id=tracker.experiment, run_name=f"export@{name}"), warnings.catch_warnings():
        # a model has no photo that may be published
        warnings.filterwarnings("ignore", message="(?s).*input example was not provided")
        logged = mlflow.pyfunc.log_model(
            name=re.sub(r"[/:.%\"']", "_", name),
            python_model=str(SERVED),
            artifacts={"model": str(folder)},
            signature=signature,
            code_paths=[str(Path(package.__file__ or "").parent) for package in (pipeline, saywhich)],
            pip_requirements=[line for line in requires("saywhich") or [] if "extra ==" not in line],
        )
    return str(logged.model_uri)
