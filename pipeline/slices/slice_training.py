"""The parts of training that slices bring. Stages that train nothing do not import this module."""

from __future__ import annotations

from pipeline.dialog.construction import DialogTraining
from pipeline.extension import SliceTraining
from pipeline.worlds.neighbourhoods import neighbourhood_numbers

TRAINING: tuple[SliceTraining, ...] = (DialogTraining(),)
NEIGHBOURHOODS = neighbourhood_numbers  # the number of each image's neighbourhood; None where images have none
