"""The slices' parts of the stages that train. They stand apart from `slices.py`: an evaluation trains nothing."""

from pipeline.dialog.construction import DialogTraining
from pipeline.extension import SliceTraining

TRAINING: tuple[SliceTraining, ...] = (DialogTraining(),)
