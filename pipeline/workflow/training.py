"""Training of the captioning core's agents or of a slice's. Stages that train nothing do not import this module."""

from __future__ import annotations

import torch

from pipeline.composition.method import Method
from pipeline.data.batches import Batches
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.dialog.construction import DialogTraining
from pipeline.evaluation.validation import build_validation
from pipeline.extension import SliceTraining
from pipeline.metrics.cider import CiderD
from pipeline.runtime import matmul_precision, ranks
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.workflow.slices import find_owner
from pipeline.worlds.neighbourhoods import neighbourhood_numbers

TRAINING: tuple[SliceTraining, ...] = (DialogTraining(),)


def build_training(
    method: Method,
    scorer: CiderD | None,
    settings: Optimisation,
    prepared: Prepared,
    store: FeatureStore,
    seed: int,
    device: torch.device,
) -> Training:
    """Build the run that trains `method` on the training split and validates it on the validation split.

    `scorer` scores the speaker's captions of the validation split.

    Small models run on one thread, which takes half the time of two on the scenes. The choice depends on the model's
    size alone, so that a seed gives the same bits on every machine.
    """
    if matmul_precision.is_small(method.agents.values()):
        torch.set_num_threads(1)
    matmul_precision.choose_precision(method.agents.values(), device)
    part, pinned, rows = (ranks.rank(), ranks.size()), device.type == "cuda", prepared.rows("train")
    if found := find_owner(TRAINING, method.agents.values()):
        own = found.build_batches(prepared, store, rows, settings.batch, seed, pinned=pinned, part=part)
        return Training(method, own, settings, seed, device, found.build_validation(method, prepared, store, device))
    batches = Batches(
        prepared,
        store,
        rows,
        settings.batch,
        seed,
        pinned=pinned,
        part=part,
        image_dropout=method.image_dropout,
        captions=settings.captions,
        groups=neighbourhood_numbers(prepared) if settings.order == "neighbourhoods" else None,
    )
    return Training(method, batches, settings, seed, device, build_validation(method, scorer, prepared, store, device))
