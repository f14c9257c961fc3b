"""Logging of exported models to MLflow, with a signature; `mlflow models serve -m …` serves them."""

from __future__ import annotations

import io
import os
import re
import warnings
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from PIL import Image

import saywhich
from pipeline import errors
from pipeline.tracking.sender import connect

MODEL_CODE = Path(__file__).with_name("mlflow_model.py")
EXTRAS = ("vision", "hub")  # extras that a served model may need


def log_to_mlflow(folder: Path, name: str) -> str:
    """Log the exported model in `folder`, with the code that loads it, in a new run; return its MLflow URI."""
    import mlflow
    import pandas as pd
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
        model_info = mlflow.pyfunc.log_model(
            name=re.sub(r"[/:.%\"']", "_", name),
            python_model=str(MODEL_CODE),
            artifacts={"model": str(folder)},
            signature=signature,
            input_example=(pd.DataFrame({"image": [make_example_photo()]}), {"beam": 5}),
            code_paths=_list_code_folders(),
            pip_requirements=_list_requirements(),
        )
    return str(model_info.model_uri)


def make_example_photo() -> bytes:
    """Return a small PNG with a gradient, since photos of the data set may not be published."""
    content = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(content, "PNG")
    return content.getvalue()


def _list_code_folders() -> list[str]:
    """Return the folders of `saywhich` and `pipeline`; in a wheel, `saywhich` contains `pipeline`."""
    pipeline_folder, saywhich_folder = (Path(module.__file__ or "").parent for module in (errors, saywhich))
    if saywhich_folder in pipeline_folder.parents:
        return [str(saywhich_folder)]
    return [str(pipeline_folder), str(saywhich_folder)]


def _list_requirements() -> list[str]:
    """Return the requirements of `saywhich`, with MLflow and the extras that a model may need."""
    requirements = []
    for line in requires("saywhich") or []:
        each = Requirement(line)
        if each.name == "mlflow" or not each.marker or any(each.marker.evaluate({"extra": key}) for key in EXTRAS):
            requirements.append(f"{each.name}{each.specifier}")
    return requirements
