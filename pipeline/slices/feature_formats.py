"""All formats of imported features."""

from __future__ import annotations

from pipeline.dialog.readers.visdial_features import VISDIAL_FEATURES
from pipeline.features.imported import FORMATS

FEATURE_FORMATS = {form.name: form for form in (*FORMATS, VISDIAL_FEATURES)}
