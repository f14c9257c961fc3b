"""Former names of keys of params.yaml and of profiles, for the error that names the new key."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

# former key, with * for any names → the last part of the present key
RENAMED = {
    "prepare.expect": "expected_counts",
    "prepare.corrupt": "known_corrupt",
    "prepare.missing": "max_missing_share",
    "features.*.mirrored": "horizontal_flip",
    "features.*.project": "pca_dim",
    "features.*.cells": "grid_size",
    "features.*.rate": "frames_per_second",
    "features.*.boxes.least": "min_boxes",
    "features.*.boxes.most": "max_boxes",
    "features.*.imported.form": "format",
    "features.*.imported.regions_kept": "max_regions",
    "pretrain.*.words": "word_dim",
    "pretrain.*.hidden": "hidden_dim",
    "pretrain.*.attention": "attention_dim",
    "pretrain.*.recover": "collapse_recovery",
    "pretrain.*.scheduled_sampling.by": "increment",
    "pretrain.*.scheduled_sampling.most": "max_share",
    "pretrain.*.places": "region_positions",
    "pretrain.*.order": "round_positions",
    "pretrain.*.hears_end": "encode_eos",
    "pretrain.*.options": "sampled_options",
    "pretrain.*.others": "batch_negatives",
    "pretrain.*.norms": "norm_penalty",
    "retriever.mined": "hard_negative_ranks",
    "retriever.no_repeat": "no_repeat_ngram_size",
    "retriever.hidden": "hidden_dims",
    "*.optimisation.parts": "validations_per_epoch",
    "*.objective.hinge": "negatives",
    "*.objective.centre": "centre_advantages",
    "*.objective.anchor": "cross_entropy_weight",
    "*.objective.ending": "eos_gradient",
    "*.objective.normalise": "normalise_gradients",
    "*.objective.scaling": "advantage_scaling",
    "*.objective.control": "control_variate",
    "methods.*.by": "decrement",
    "sweep.grid.*.by": "decrement",
    "methods.*.forced": "forced_tokens",
    "sweep.grid.*.forced": "forced_tokens",
    "methods.*.continuations": "rollouts",
    "methods.*.norms": "norm_penalty",
    "sweep.grid.*.continuations": "rollouts",
    "evaluate.no_repeat": "no_repeat_ngram_size",
    "evaluate.near": "hard_gallery",
    "evaluate.hard_gallery.by": "similarity",
    "evaluate.several": "multi_sample",
    "evaluate.beside": "candidate_rankers",
    "sweep.seconds": "seconds_per_cell",
    "report.frozen": "frozen_speakers",
    "report.at_cider": "cider_levels",
    "report.at_score": "score_levels",
    "over": "extends",  # key of a profile
    "instead": "replace",
}


def find_present_name(keys: Sequence[str]) -> str | None:
    """Return the present name of the former key at the path `keys`; None where that path is no former key."""
    return next((new for old, new in RENAMED.items() if fnmatchcase(".".join(keys), old)), None)
