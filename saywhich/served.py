"""An exported model as MLflow serves it (`mlflow models serve`): photos in, captions out. MLflow runs this file."""

from __future__ import annotations

from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Captions(PythonModel):
    """A table with a column `image`, the bytes of an image file a row → one with a column `caption`."""

    def load_context(self, context: Any) -> None:
        """Load the exported folder, which is the artifact `model`."""
        import saywhich

        self.model = saywhich.load(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Captions by beam search of width `beam`."""
        from saywhich.uploads import Limits, Upload

        images = [Upload(number, content, Limits()) for number, content in enumerate(model_input["image"], 1)]
        said = self.model.caption(images, beam=(params or {}).get("beam", 5))
        return pd.DataFrame({"caption": [caption.text for caption in said]})


set_model(Captions())
