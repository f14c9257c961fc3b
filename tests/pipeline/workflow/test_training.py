"""Construction of training runs: the orders of training images, and the hard gallery of validation."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from pipeline.composition.method import LISTENER_ONLY, Method
from pipeline.data.batches import Batches
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.errors import UserError
from pipeline.models.listener import Listener
from pipeline.readers import read_karpathy
from pipeline.training.optimisation import Optimisation
from pipeline.workflow.training import build_training, find_look_alikes
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene


class ListenerSlice:
    """A training slice that owns listeners, with batches of captions."""

    handled_agents = (Listener,)

    def build_batches(self, *arguments, **options):
        return Batches(*arguments, **options)

    def build_validation(self, *arguments):
        return None


@pytest.fixture
def world(karpathy, tmp_path):
    """Return the prepared data and the features of 40 images, of which 20 are for training.

    Images whose ids have the same remainder modulo 5 form a neighbourhood.
    """
    write_prepared(read_karpathy(karpathy(40)[0]), tmp_path / "prepared", min_count=0, max_words=16)
    with FeatureWriter(tmp_path / "features", 40, 2, (3, 2)) as writer:
        writer.write(np.arange(40), np.zeros((40, 2)), np.zeros((40, 3, 2)))
    scenes = (Scene("park", "sunny", "day", 0.45, 0.45, {}, (), number % 5) for number in range(40))
    lines = [json.dumps({"imgid": number, **each.record()}) for number, each in enumerate(scenes)]
    (tmp_path / "prepared" / SCENE_FACTS).write_text("\n".join(lines) + "\n")
    return PreparedData.load(tmp_path / "prepared"), FeatureStore(tmp_path / "features")


def list_neighbourhoods(world, epoch: int = 0, **settings) -> list[int]:
    """Return the neighbourhood of each image in an epoch of two batches of 8."""
    words = len(world[0].vocabulary)
    method = Method({"listener": Listener(words, 2, words=4, hidden=4)}, (), LISTENER_ONLY)
    training = build_training(method, None, Optimisation(1, 8, **settings), *world, 1, torch.device("cpu"))
    ids = world[0].ids.to_pylist()
    return [int(ids[row]) % 5 for batch in training.batches.epoch(epoch) for row in batch.images.tolist()]


def test_a_training_orders_images_by_neighbourhood_or_at_random(world):
    epochs = [list_neighbourhoods(world, epoch, order="neighbourhoods") for epoch in range(4)]
    for found in epochs:
        assert found == sorted(found, key=found.index)  # the images of a neighbourhood are consecutive
        assert [found.count(number) for number in dict.fromkeys(found)] == [4, 4, 4, 4]
    assert len({tuple(found) for found in epochs}) > 1
    mixed = list_neighbourhoods(world)
    assert len(mixed) == 16
    assert mixed != sorted(mixed, key=mixed.index)


def test_an_order_of_neighbourhoods_is_refused_without_facts(world):
    (world[0].folder / SCENE_FACTS).unlink()
    assert len(list_neighbourhoods(world)) == 16
    with pytest.raises(UserError, match="no neighbourhoods"):
        list_neighbourhoods(world, order="neighbourhoods")


@pytest.mark.parametrize("settings", [{"order": "look_alikes"}, {"order": "neighbourhoods"}, {"captions": "all"}])
def test_orders_and_all_captions_are_refused_for_a_slices_agents(world, monkeypatch, settings):
    monkeypatch.setattr("pipeline.workflow.training.TRAINING", (ListenerSlice(),))
    ((name, value),) = settings.items()
    with pytest.raises(UserError, match=f"optimisation.{name}: {value} applies to the training of captions only"):
        list_neighbourhoods(world, **settings)
    assert len(list_neighbourhoods(world)) == 16


def test_validation_has_the_hard_gallery_of_the_validation_split(world):
    prepared, _ = world
    neighbourhoods = np.random.default_rng(0).integers(0, 4, 40).tolist()
    scenes = (Scene("park", "sunny", "day", 0.45, 0.45, {}, (), number) for number in neighbourhoods)
    lines = [json.dumps({"imgid": number, **each.record()}) for number, each in enumerate(scenes)]
    (prepared.folder / SCENE_FACTS).write_text("\n".join(lines) + "\n")
    words = len(prepared.vocabulary)
    method = Method({"listener": Listener(words, 2, words=4, hidden=4)}, (), LISTENER_ONLY)
    training = build_training(method, None, Optimisation(1, 8), *world, 1, torch.device("cpu"))
    keys = [neighbourhoods[int(prepared.ids[int(row)].as_py())] for row in prepared.rows("val")]
    expected = [[k for k, other in enumerate(keys) if other == own and k != n] for n, own in enumerate(keys)]
    found = training.validate.hard_gallery.tolist()
    assert [[k for k in row if k >= 0] for row in found] == expected


def test_look_alikes_are_the_nearest_training_images(world, tmp_path):
    prepared, rows = world[0], world[0].rows("train")
    with FeatureWriter(tmp_path / "drawn", 40, 4, (3, 2)) as writer:
        writer.write(np.arange(40), np.random.default_rng(0).normal(size=(40, 4)), np.zeros((40, 3, 2)))
    store = FeatureStore(tmp_path / "drawn")
    groups = find_look_alikes(store, rows, 3, torch.device("cpu"))
    assert groups.size == 3
    vectors = store.pooled(rows) - store.pooled(rows).mean(0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for position, row in enumerate(rows):
        order = [int(other) for other in rows[np.argsort(-(unit @ unit[position]), kind="stable")] if other != row]
        assert groups.nearest[row].tolist() == order[:8]  # four candidates for each other image of a group
    other_rows = np.setdiff1d(np.arange(40), rows)
    assert (groups.nearest[other_rows] == -1).all()
    method = Method({"listener": Listener(len(prepared.vocabulary), 4, words=4, hidden=4)}, (), LISTENER_ONLY)
    settings = Optimisation(1, 8, order="look_alikes", group_size=3)
    training = build_training(method, None, settings, prepared, store, 1, torch.device("cpu"))
    assert training.batches.look_alikes.size == 3
    assert (training.batches.look_alikes.nearest == groups.nearest).all()
