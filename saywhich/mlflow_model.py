"""The MLflow model class of an exported model, which maps photos to captions. MLflow runs this file."""

from __future__ import annotations

from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class CaptionModel(PythonModel):
    """A model that maps a table with the column `image` (bytes of image files) to a table with the column `caption`."""

    def load_context(self, context: Any) -> None:
        """Load the exported folder, the artifact `model`."""
        import saywhich

        self.model = saywhich.load(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return captions by beam search of width `beam` (default 5)."""
        from saywhich.uploads import Upload, UploadLimits

        images = [Upload(number, content, UploadLimits()) for number, content in enumerate(model_input["image"], 1)]
        captions = self.model.caption(images, beam=(params or {}).get("beam", 5))
        return pd.DataFrame({"caption": [caption.text for caption in captions]})


set_model(CaptionModel())
