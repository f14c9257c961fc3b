"""Parts of training that slices add. Stages that train no network do not import this module."""

from __future__ import annotations

from pipeline.dialog.construction import DialogTraining
from pipeline.extension import SliceTraining
from pipeline.worlds.neighbourhoods import find_neighbourhood_numbers

TRAINING: tuple[SliceTraining, ...] = (DialogTraining(),)
NEIGHBOURHOODS = find_neighbourhood_numbers  # function: each image's neighbourhood number; None without neighbourhoods
