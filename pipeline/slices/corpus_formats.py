"""All formats of corpora."""

from __future__ import annotations

from pipeline.dialog.readers.visdial_format import VISDIAL
from pipeline.readers import FORMATS as CORE

FORMATS = (*CORE, VISDIAL)
