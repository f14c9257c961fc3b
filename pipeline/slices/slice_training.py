"""The training of the agents of slices. Stages that train nothing do not import this module."""

from __future__ import annotations

from pipeline.dialog.construction import DialogTraining
from pipeline.extension import SliceTraining

TRAINING: tuple[SliceTraining, ...] = (DialogTraining(),)
