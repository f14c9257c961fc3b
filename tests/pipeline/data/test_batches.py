import threading
from collections import Counter

import numpy as np
import pytest
import torch

from pipeline.data.batches import Batches, iterate_sequentially
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.data.image_groups import LookAlikeGroups
from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.errors import UserError
from pipeline.readers import read_karpathy


@pytest.fixture
def world(karpathy, tmp_path):
    """Return 40 prepared images, 20 of them in the training split, and a store where all features of image i are i."""
    write_prepared(read_karpathy(karpathy(40)[0]), tmp_path / "prepared", min_count=0, max_words=16)
    with FeatureWriter(tmp_path / "features", 40, 2, (3, 2)) as store:
        rows = np.arange(40)
        store.write(rows, np.tile(rows[:, None], (1, 2)), np.tile(rows[:, None, None], (1, 3, 2)))
    return PreparedData.load(tmp_path / "prepared"), FeatureStore(tmp_path / "features")


def collect_captions(batches, epoch):
    """Return a mapping from images to captions in an epoch with one caption per image."""
    pairs = [
        (int(i), tuple(c.tolist())) for b in batches.epoch(epoch) for i, c in zip(b.images, b.captions, strict=True)
    ]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_a_batch_holds_the_features_and_captions_of_its_images(world):
    prepared, store = world
    batches = Batches(prepared, store, prepared.rows("train"), 6, seed=1)
    whole = list(batches.epoch(2))
    assert len(whole) == len(batches) == 3
    for number, batch in enumerate(whole):
        assert (batch.epoch, batch.step, len(batch)) == (2, 6 + number, 6)
        assert batch.pooled.tolist() == [[i, i] for i in batch.images.tolist()]
        assert torch.equal(batch.regions, batch.images[:, None, None].expand(6, 3, 2).float())
        assert batch.region_mask.all()
        assert batch.captions.shape == (6, 16)
        assert batch.captions.dtype == batch.images.dtype == torch.int64
        for image, caption in zip(batch.images.tolist(), batch.captions.tolist(), strict=True):
            assert [token for token in caption if token] in prepared.captions(image)
            assert image in prepared.rows("train")


def test_seed_and_epoch_fix_the_order_and_both_change_it(world):
    prepared, store = world
    rows = prepared.rows("train")

    def list_images(seed, epoch):
        return [i for b in Batches(prepared, store, rows, 5, seed).epoch(epoch) for i in b.images.tolist()]

    assert list_images(1, 0) == list_images(1, 0)
    assert sorted(list_images(1, 0)) == rows.tolist()
    assert len({tuple(list_images(*key)) for key in ((1, 0), (1, 1), (2, 0), (0, 1))}) == 4
    large = [2**63, 2**63 + 1, 2**64 - 1]  # as large as sums of two seeds
    assert len({tuple(list_images(seed, 0)) for seed in large}) == 3


def test_images_of_a_group_follow_each_other_and_the_order_of_groups_is_random(world):
    prepared, store = world
    rows = prepared.rows("train")
    groups = np.arange(len(prepared)) % 4

    def list_images(seed, groups=groups):
        batches = Batches(prepared, store, rows, 5, seed, groups=groups)
        return [i for b in batches.epoch(0) for i in b.images.tolist()]

    arranged = groups[list_images(1)]
    assert sorted(list_images(1)) == rows.tolist()
    assert (np.diff(arranged) != 0).sum() == len(set(arranged)) - 1
    assert len({tuple(dict.fromkeys(groups[list_images(seed)])) for seed in range(6)}) > 1
    assert list_images(1, np.arange(len(prepared))) == list_images(1, None)


def test_the_caption_depends_on_seed_epoch_and_image_only(world):
    prepared, store = world
    rows = prepared.rows("train")
    reference = collect_captions(Batches(prepared, store, rows, 20, 3), 4)
    assert collect_captions(Batches(prepared, store, rows, 2, 3), 4) == reference
    some = collect_captions(Batches(prepared, store, rows[5:9], 2, 3), 4)
    assert some == {image: reference[image] for image in rows[5:9].tolist()}
    assert collect_captions(Batches(prepared, store, rows, 20, 3), 5) != reference


def test_all_captions_of_an_image_are_equally_likely(world):
    prepared, store = world
    image = next(i for i in prepared.rows("train").tolist() if len(prepared.captions(i)) == 5)
    batches = Batches(prepared, store, prepared.rows("train"), 20, 0)
    counts = Counter(collect_captions(batches, epoch)[image] for epoch in range(400))
    assert len(counts) == 5
    assert all(50 < count < 110 for count in counts.values())  # 80 ± 8


def list_pairs(batches, epoch, start=0):
    """Return the batches of an epoch, each as a list of pairs (image, caption) in order."""
    return [
        [(int(i), tuple(t for t in c.tolist() if t)) for i, c in zip(b.images, b.captions, strict=True)]
        for b in batches.epoch(epoch, start)
    ]


def test_an_epoch_of_all_captions_has_each_caption_once_and_no_image_twice_in_a_batch(world):
    prepared, store = world
    rows = prepared.rows("train")
    counts = [len(prepared.captions(row)) for row in rows]
    batches = Batches(prepared, store, rows, 1, 3, captions="all")
    assert len(batches) == sum(counts) == 60
    pairs = sorted((int(row), tuple(caption)) for row in rows for caption in prepared.captions(row))
    epochs = [[pair for (pair,) in list_pairs(batches, epoch)] for epoch in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == pairs
    assert epochs[0] != epochs[1]
    sixes = Batches(prepared, store, rows, 6, 3, captions="all")
    assert len(sixes) == sum(sum(count > k for count in counts) // 6 for k in range(max(counts)))
    whole = list_pairs(sixes, 4)
    assert len(whole) == len(sixes)
    assert all(len(dict(batch)) == 6 for batch in whole)
    assert [batch.step for batch in sixes.epoch(2)] == list(range(2 * len(sixes), 3 * len(sixes)))
    assert list_pairs(sixes, 4, start=5) == whole[5:]
    parts = [list_pairs(Batches(prepared, store, rows, 6, 3, captions="all", part=(k, 2)), 4) for k in range(2)]
    assert [one + other for one, other in zip(*parts, strict=True)] == whole


def test_which_images_are_dropped_depends_on_seed_epoch_and_image_only(world):
    prepared, store = world
    rows = prepared.rows("train")

    def find_dropped_images(batch, epoch=4, seed=3, share=0.3, **more):
        batches = Batches(prepared, store, rows, batch, seed, image_dropout=share, **more)
        masks = {int(i): m for b in batches.epoch(epoch) for i, m in zip(b.images, b.region_mask, strict=True)}
        assert all(mask.all() or not mask.any() for mask in masks.values())
        return {image for image, mask in masks.items() if not mask.any()}

    reference = find_dropped_images(20)
    assert 0 < len(reference) < 20
    assert find_dropped_images(4) == find_dropped_images(2) == reference
    assert find_dropped_images(4, part=(0, 2)) | find_dropped_images(4, part=(1, 2)) == reference
    assert find_dropped_images(20, epoch=5) != reference != find_dropped_images(20, seed=4)
    assert find_dropped_images(20, share=0.0) == set()
    shares = [len(find_dropped_images(20, epoch)) / 20 for epoch in range(100)]
    assert 0.26 < np.mean(shares) < 0.34  # .3 ± .01
    plain = Batches(prepared, store, rows, 20, 3)
    assert collect_captions(Batches(prepared, store, rows, 20, 3, image_dropout=0.3), 4) == collect_captions(plain, 4)


def test_masked_images_have_any_of_their_captions(world):
    prepared, store = world
    image = next(i for i in prepared.rows("train").tolist() if len(prepared.captions(i)) == 5)
    batches = Batches(prepared, store, prepared.rows("train"), 20, 0, image_dropout=0.3)
    captions = Counter(
        tuple(batch.captions[row].tolist())
        for epoch in range(200)
        for batch in batches.epoch(epoch)
        for row in ((batch.images == image) & ~batch.region_mask.any(1)).nonzero().flatten().tolist()
    )
    assert len(captions) == 5


def test_half_of_the_images_are_mirrored_by_seed_epoch_image_and_pass(world, tmp_path):
    prepared, _ = world
    with FeatureWriter(tmp_path / "both", 40, 1, (1, 1), mirrored=True) as writer:
        rows = np.arange(80)  # the features of image i are i, and those of its mirror image are 40 + i
        writer.write(rows, rows[:, None], rows[:, None, None])
    store, rows = FeatureStore(tmp_path / "both"), prepared.rows("train")

    def list_orientations(batch, epoch=4, seed=3, **more):
        found = []
        for b in Batches(prepared, store, rows, batch, seed, **more).epoch(epoch):
            assert torch.equal(b.pooled[:, 0], b.regions[:, 0, 0])
            assert torch.equal(b.pooled[:, 0] % 40, b.images.float())
            found += [(int(i), bool(p >= 40)) for i, p in zip(b.images, b.pooled[:, 0], strict=True)]
        return found

    reference = sorted(list_orientations(20))
    assert 3 < sum(mirrored for _, mirrored in reference) < 17
    assert sorted(list_orientations(4)) == reference
    assert sorted(list_orientations(4, part=(0, 2)) + list_orientations(4, part=(1, 2))) == reference
    assert sorted(list_orientations(20, epoch=5)) != reference != sorted(list_orientations(20, seed=4))
    share = np.mean([mirrored for epoch in range(60) for _, mirrored in list_orientations(20, epoch)])
    assert 0.45 < share < 0.55  # .5 ± .014
    orientations = list_orientations(1, captions="all")
    assert len(set(orientations)) > len(rows), "some image must occur in both orientations"
    order = [b.images.tolist() for b in Batches(prepared, world[1], rows, 5, 3, captions="all").epoch(4)]
    assert [b.images.tolist() for b in Batches(prepared, store, rows, 5, 3, captions="all").epoch(4)] == order
    batch = next(iterate_sequentially(prepared, store, rows, 20))
    assert torch.equal(batch.pooled[:, 0], batch.images.float()), "evaluation mirrors no image"


def test_an_epoch_resumes_at_any_batch(world):
    prepared, store = world
    batches = Batches(prepared, store, prepared.rows("train"), 4, 1)
    whole = list(batches.epoch(3))
    for start in range(6):
        rest = list(batches.epoch(3, start))
        assert [b.step for b in rest] == [b.step for b in whole[start:]]
        for one, other in zip(rest, whole[start:], strict=True):
            assert torch.equal(one.images, other.images)
            assert torch.equal(one.captions, other.captions)


def test_a_pinned_batch_is_equal_after_its_transfer(world, monkeypatch):
    prepared, store = world
    empty, requests = torch.empty, []
    # Without a GPU no memory can be pinned, so the test records the requests for pinned memory.
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: requests.append(pin_memory) or empty(*a, **k))
    plain, pinned = (
        next(Batches(prepared, store, prepared.rows("train"), 6, 1, pinned=p).epoch(0)) for p in (False, True)
    )
    assert requests.count(True) >= 2
    assert pinned.pooled.dtype == pinned.regions.dtype == torch.float16
    transferred = pinned.to("cpu")
    for name in ("images", "pooled", "regions", "region_mask", "captions"):
        one, other = getattr(plain, name), getattr(transferred, name)
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_a_split_smaller_than_a_batch_is_one_batch(world):
    prepared, store = world
    batches = Batches(prepared, store, prepared.rows("train")[:3], 128, 1)
    assert [len(batch) for batch in batches.epoch(0)] == [3]
    with pytest.raises(UserError, match="expected a split of two or more images, got 1"):
        Batches(prepared, store, prepared.rows("train")[:1], 128, 1)


def test_reading_ahead_stops_with_its_consumer_and_hands_errors_on(world):
    prepared, store = world
    batches = Batches(prepared, store, prepared.rows("train"), 2, 1)
    epoch = batches.epoch(0)
    next(epoch)
    assert any(thread.name.startswith("batches") for thread in threading.enumerate())
    epoch.close()
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())
    store.read_into = lambda rows, pooled, regions: 1 / 0
    with pytest.raises(ZeroDivisionError):
        list(batches.epoch(0))
    assert not any(thread.name.startswith("batches") for thread in threading.enumerate())


def test_sequential_batches_are_in_order_with_the_first_caption(world):
    prepared, store = world
    rows = prepared.rows("test")
    batches = list(iterate_sequentially(prepared, store, rows, 4))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert torch.cat([batch.images for batch in batches]).tolist() == rows.tolist()
    captions = [[t for t in row if t] for batch in batches for row in batch.captions.tolist()]
    assert captions == [prepared.captions(row)[0] for row in rows]


def test_features_of_another_number_of_images_are_refused(world, tmp_path):
    prepared, _ = world
    with FeatureWriter(tmp_path / "fewer", 3, 2, (3, 2)) as writer:
        writer.write(np.arange(3), np.zeros((3, 2)), np.zeros((3, 3, 2)))
    with pytest.raises(UserError, match="features of 3 images, but"):
        Batches(prepared, FeatureStore(tmp_path / "fewer"), prepared.rows("train"), 2, 1)


def test_parts_of_a_batch_are_its_images_in_order(world):
    prepared, store = world
    rows = prepared.rows("train")
    whole = next(Batches(prepared, store, rows, 4, seed=1).epoch(0))
    parts = [next(Batches(prepared, store, rows, 4, seed=1, part=(k, 2)).epoch(0)) for k in range(2)]
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
    assert torch.equal(torch.cat([part.captions for part in parts]), whole.captions)
    assert [(part.first, part.total) for part in parts] == [(0, 4), (2, 4)]
    with pytest.raises(UserError, match="a batch of 4 images does not divide into 3 equal parts"):
        Batches(prepared, store, rows, 4, seed=1, part=(0, 3))


def test_look_alikes_follow_each_other_in_groups_that_every_epoch_forms_anew(world):
    prepared, store = world
    rows = prepared.rows("train")
    nearest = np.full((len(prepared), 3), -1)
    distance = np.abs(rows[:, None] - rows).astype(float)
    np.fill_diagonal(distance, np.inf)
    nearest[rows] = rows[distance.argsort(1, kind="stable")[:, :3]]
    groups = LookAlikeGroups(nearest, 2)

    def list_images(epoch):
        batches = Batches(prepared, store, rows, 5, seed=1, look_alikes=groups)
        return [i for b in batches.epoch(epoch) for i in b.images.tolist()]

    assert sorted(list_images(0)) == rows.tolist()
    assert list_images(0) == list_images(0) != list_images(1)
    position = {image: n for n, image in enumerate(rows.tolist())}
    are_close = [abs(position[a] - position[b]) <= 3 for a, b in zip(list_images(0), list_images(0)[1:], strict=False)]
    assert sum(are_close) >= 9  # a random order has about 5


def test_groups_are_an_image_and_its_nearest_images_that_are_free():
    nearest = np.array([[1, 2], [0, 2], [1, 3], [2, 1], [-1, -1]])
    groups = LookAlikeGroups(nearest, 3)
    assert groups.arrange(np.array([2, 0, 1, 3])).tolist() == [2, 1, 3, 0]
    assert groups.arrange(np.array([0, 4, 3, 2])).tolist() == [0, 2, 4, 3]  # image 1 is absent
    # The nearest image of 3 is 2, which is absent, so 3 is followed by 1.
    assert LookAlikeGroups(nearest, 2).arrange(np.array([3, 0, 1])).tolist() == [3, 1, 0]


def test_take_vectors_replaces_vectors_and_keeps_regions(world, tmp_path):
    prepared, store = world
    with FeatureWriter(tmp_path / "other", 40, 5, (1, 1)) as other:
        rows = np.arange(40)
        other.write(rows, np.tile(100 + rows[:, None], (1, 5)), np.zeros((40, 1, 1)))
    store.take_vectors(FeatureStore(tmp_path / "other"))
    assert store.pooled_size == 5
    (batch,) = list(iterate_sequentially(prepared, store, np.array([7, 3]), 2))
    assert batch.pooled.tolist() == [[107.0] * 5, [103.0] * 5]
    assert batch.regions.tolist() == [[[7.0] * 2] * 3, [[3.0] * 2] * 3]
    assert store.read(np.array([3]))[0].tolist() == store.pooled(np.array([3])).tolist() == [[103.0] * 5]
    with FeatureWriter(tmp_path / "mirrored", 40, 5, (1, 1), mirrored=True) as other:
        other.write(np.arange(80), np.zeros((80, 5)), np.zeros((80, 1, 1)))
    with pytest.raises(UserError, match="mirror images in both or in neither"):
        store.take_vectors(FeatureStore(tmp_path / "mirrored"))
