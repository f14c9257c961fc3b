"""A training run of any method, from its settings and the data."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

from pipeline.composition.method import Method
from pipeline.data.batches import Batches, sequential_batches
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.validation import Validation
from pipeline.metrics.cider import CiderD
from pipeline.models.listener import Listener
from pipeline.runtime import matmul_precision, ranks
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.types import Batch
from pipeline.workflow.slice_training import TRAINING
from pipeline.workflow.slices import find_owner
from pipeline.worlds.neighbourhoods import neighbourhood_numbers

VALIDATION_BATCH = 256


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

    `scorer` scores the speaker's captions of the validation split. With SAYWHICH_VALIDATION=bfloat16, they are
    generated with matrix products in bfloat16; raises UserError for any value but float32 and bfloat16.

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
    held_out = prepared.rows("val")
    listener = method.agents.get("listener")
    assert listener is None or isinstance(listener, Listener)

    def looked_at() -> Iterable[Batch]:
        return sequential_batches(prepared, store, held_out, VALIDATION_BATCH)

    wanted = os.environ.get("SAYWHICH_VALIDATION", "float32")
    if wanted not in ("float32", "bfloat16"):
        raise UserError(f"SAYWHICH_VALIDATION={wanted}: one of float32, bfloat16")
    dtype = torch.bfloat16 if wanted == "bfloat16" else None
    unk = prepared.vocabulary.unk
    validate = Validation(method.speaker, listener, scorer, looked_at, device, unk, dtype, method.validation_judge)
    return Training(method, batches, settings, seed, device, validate)
