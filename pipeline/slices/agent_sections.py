"""Schemas of the blocks of `pretrain` in params.yaml that configure the agents of slices."""

from __future__ import annotations

from pipeline.dialog.settings import DIALOG_AGENTS, DialogBlock

SliceBlock = DialogBlock  # the union of all slices' blocks
SLICE_AGENTS = (DIALOG_AGENTS,)
