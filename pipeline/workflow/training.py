"""Construction of training runs of the captioning core or slices. Stages without training do not import this module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pipeline.composition.method import Method
from pipeline.data.batches import Batches
from pipeline.data.feature_store import FeatureStore
from pipeline.data.image_features import load_data
from pipeline.data.image_groups import LookAlikeGroups
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.evaluation.hard_gallery import find_galleries_by_key
from pipeline.evaluation.validation import build_validation
from pipeline.metrics.cider import CiderD
from pipeline.metrics.retrieval import find_similar_distractors
from pipeline.runtime import matmul_precision, ranks
from pipeline.slices.slice_agents import find_owner, load_any_agent
from pipeline.slices.slice_training import NEIGHBOURHOODS, TRAINING
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation

CANDIDATES_PER_IMAGE = 4  # candidates for each image of a group of look-alikes, since some are in other groups already


def load_training_data(root: Path) -> tuple[PreparedData, FeatureStore]:
    """Return the prepared data, and the speakers' features with the vectors that the pretrained listener encodes."""
    listener = load_any_agent(root / "pretrained" / "listener" / "weights.safetensors", "listener")
    return load_data(root, vectors=getattr(listener, "features", None))


def build_training(
    method: Method,
    scorer: CiderD | None,
    settings: Optimisation,
    prepared: PreparedData,
    store: FeatureStore,
    seed: int,
    device: torch.device,
) -> Training:
    """Build the run that trains `method` on the training split and validates it on the validation split.

    `scorer` scores the speaker's captions of the validation split; a slice's agents need none.

    Small models run on one thread, which takes half the time of two threads on the scenes. Their sums therefore do not
    depend on the number of cores.

    Raises UserError for an order by neighbourhoods where the images have none, and for a `group_size` as
    `find_look_alikes` does. A slice's agents train in random order only, on `captions: one`; other settings raise
    UserError, too.
    """
    if matmul_precision.is_small(method.agents.values()):
        torch.set_num_threads(1)
    matmul_precision.choose_precision(method.agents.values(), device)
    part, pinned, rows = (ranks.get_rank(), ranks.count_ranks()), device.type == "cuda", prepared.rows("train")
    if owner := find_owner(TRAINING, method.agents.values()):
        for name, default in (("order", "random"), ("captions", "one")):
            if (value := getattr(settings, name)) != default:
                raise UserError(
                    f"optimisation.{name}: {value} applies to the training of captions only; set it to {default}"
                )
        slice_batches = owner.build_batches(prepared, store, rows, settings.batch, seed, pinned=pinned, part=part)
        slice_validation = owner.build_validation(method, prepared, store, device)
        return Training(method, slice_batches, settings, seed, device, slice_validation)
    neighbourhoods = NEIGHBOURHOODS(prepared)
    if neighbourhoods is None and settings.order == "neighbourhoods":
        raise UserError(
            f"{prepared.folder}: these images have no neighbourhoods; set optimisation.order to random or look_alikes"
        )
    gallery = None if neighbourhoods is None else find_galleries_by_key(neighbourhoods[prepared.rows("val")].tolist())
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
        groups=neighbourhoods if settings.order == "neighbourhoods" else None,
        look_alikes=(
            find_look_alikes(store, rows, settings.group_size, device) if settings.order == "look_alikes" else None
        ),
    )
    validation = build_validation(method, scorer, prepared, store, device, gallery)
    return Training(method, batches, settings, seed, device, validation)


def find_look_alikes(store: FeatureStore, rows: np.ndarray, size: int, device: torch.device) -> LookAlikeGroups:
    """Return groups of `size` look-alikes among the images `rows` (n,), by the cosine of centred vectors.

    Raises UserError for groups of fewer than two images, or of more images than there are.
    """
    if not 2 <= size <= len(rows):
        raise UserError(
            f"optimisation.group_size: expected 2 to {len(rows)}, the number of training images, got {size}; change it "
            "in params.yaml"
        )
    vectors = torch.from_numpy(store.pooled(rows)).to(device)
    neighbours = find_similar_distractors(vectors, min(CANDIDATES_PER_IMAGE * (size - 1), len(rows) - 1)).cpu().numpy()
    nearest = np.full((len(store), neighbours.shape[1]), -1)
    nearest[rows] = rows[neighbours]
    return LookAlikeGroups(nearest, size)
