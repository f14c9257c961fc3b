import io
import multiprocessing
import os
import pickle
import zlib
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from feature_checksums import verify

from pipeline.data import feature_store
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.errors import UserError


def make_features(images: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    count = 1 + np.arange(images) % 4
    return rng.standard_normal((images, 6), np.float32), rng.standard_normal((images, 4, 3), np.float32), count


def write_store(folder, order=None, images=10):
    pooled, regions, count = make_features(images)
    order = np.arange(images) if order is None else order
    with FeatureWriter(folder, images, 6, (4, 3)) as store:
        store.manifest["network"] = "none"
        for start in range(0, len(order), 4):
            rows = np.sort(order[start : start + 4])
            store.write(rows, pooled[rows], regions[rows], count[rows])


def test_features_are_read_as_written_in_half_precision(tmp_path):
    write_store(tmp_path, np.random.default_rng(1).permutation(10))
    store, (pooled, regions, count) = FeatureStore(tmp_path), make_features()
    assert (len(store), store.pooled_size, store.regions_shape) == (10, 6, (4, 3))
    assert store.manifest["network"] == "none"
    rows = np.array([7, 0, 7, 3])
    got_pooled, got_regions, mask = store.read(rows)
    np.testing.assert_array_equal(got_pooled, pooled[rows].astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(got_regions, regions[rows].astype(np.float16).astype(np.float32))
    assert got_pooled.dtype == got_regions.dtype == np.float32
    assert mask.tolist() == [[n < c for n in range(4)] for c in count[rows]]
    verify(store)


def test_rows_are_read_in_any_order_and_runs_of_them_at_once(tmp_path, monkeypatch):
    write_store(tmp_path)
    store, (pooled, regions, _) = FeatureStore(tmp_path), make_features()
    rows = np.array([4, 5, 6, 2, 1, 9, 9, 0])
    sizes, preadv = [], os.preadv

    def read_20_bytes(file, buffers, offset):
        """Read at most 20 bytes: a disk may return fewer bytes than requested."""
        sizes.append(len(buffers[0]))
        return preadv(file, [buffers[0][:20]], offset)

    monkeypatch.setattr("os.preadv", read_20_bytes)
    got = np.zeros((8, 6), np.float16), np.zeros((8, 4, 3), np.float16)
    store.read_into(rows, *got)
    np.testing.assert_array_equal(got[0], pooled[rows].astype(np.float16))
    np.testing.assert_array_equal(got[1], regions[rows].astype(np.float16))
    assert sizes[:2] == [36, 16]  # three consecutive rows, and the bytes that the first read left
    assert [len(values) for values in store.read(rows[:0])] == [0, 0, 0]
    with pytest.raises(IndexError, match="expected rows from 0 to 9, got rows 3 to 10"):
        store.read(np.array([10, 3]))


def test_two_threads_may_open_a_store_at_once(tmp_path, monkeypatch):
    write_store(tmp_path)
    store, advise = FeatureStore(tmp_path), os.posix_fadvise

    def open_file_and_advise(*arguments):
        """Replace the open file, like another thread that opens the store at the same time."""
        store._file = io.FileIO(store.path)
        advise(*arguments)

    monkeypatch.setattr("os.posix_fadvise", open_file_and_advise)
    np.testing.assert_array_equal(store.read(np.array([3, 1]))[0], make_features()[0][[3, 1]].astype(np.float16))


def test_a_file_truncated_while_open_is_reported(tmp_path):
    write_store(tmp_path)
    store = FeatureStore(tmp_path)
    with open(store.path, "r+b") as file:
        file.truncate(store._offsets["regions"] + 30)
    with pytest.raises(UserError, match="the file is shorter than it was"):
        store.read(np.array([0, 3]))


def test_a_repacked_file_is_refused(tmp_path):
    """Rows of a compressed array have no position in the file; a group `boxes` has none either."""
    pooled, regions, count = make_features()
    with FeatureWriter(tmp_path, 10, 6, (4, 3), boxes=True) as store:
        store.write(np.arange(10), pooled, regions, count, np.zeros((10, 4, 4)))
    with h5py.File(tmp_path / "features.h5", "r+") as file:
        values = file["regions"][:]
        del file["regions"]
        file.create_dataset("regions", data=values, compression="gzip")
    with pytest.raises(UserError, match=r"regions is stored in chunks, expected contiguous\); run the features stage"):
        FeatureStore(tmp_path)
    with h5py.File(tmp_path / "features.h5", "r+") as file:
        del file["boxes"], file["regions"]
        file["regions"] = values
        file.create_group("boxes")
    with pytest.raises(UserError, match="boxes is not an array of numbers"):
        FeatureStore(tmp_path)


def test_boxes_are_stored_with_regions_and_checked_with_them(tmp_path):
    pooled, regions, count = make_features()
    boxes = np.random.default_rng(1).random((10, 4, 4), np.float32)
    with FeatureWriter(tmp_path / "boxes", 10, 6, (4, 3), boxes=True) as store:
        store.write(np.arange(10), pooled, regions, count, boxes)
    store = FeatureStore(tmp_path / "boxes")
    np.testing.assert_array_equal(store.boxes(np.array([7, 2])), boxes[[7, 2]])
    np.testing.assert_array_equal(store.read(np.array([7]))[1], regions[[7]].astype(np.float16).astype(np.float32))
    verify(store)
    with h5py.File(tmp_path / "boxes" / "features.h5", "r+") as file:
        file["boxes"][3, 2, 1] += 0.25
    with pytest.raises(UserError, match="row 3: the checksum differs"):
        verify(FeatureStore(tmp_path / "boxes"))
    with pytest.raises(UserError, match="row 3: the checksum differs"):
        FeatureStore(tmp_path / "boxes").boxes(np.array([2, 3]))
    write_store(tmp_path / "none")
    with pytest.raises(UserError, match="its regions have no boxes"):
        FeatureStore(tmp_path / "none").boxes(np.array([0]))


def test_a_checksum_without_boxes_covers_pooled_regions_and_their_count(tmp_path):
    """A checksum is the CRC-32 of pooled, regions and region_count, and a file without crc_pooled is valid."""
    write_store(tmp_path)
    pooled, regions, count = make_features()
    row = pooled[4].astype("<f2").tobytes() + regions[4].astype("<f2").tobytes() + count[4].astype("<i4").tobytes()
    with h5py.File(tmp_path / "features.h5") as file:
        assert set(file) == {"pooled", "regions", "region_count", "crc", "crc_pooled"}
        assert file["crc"][4] == zlib.crc32(row)
    with h5py.File(tmp_path / "features.h5", "r+") as file:
        del file["crc_pooled"]
    verify(FeatureStore(tmp_path))


def send_sum(store, rows, queue):
    queue.put(store.read(rows)[0].sum())


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_an_opened_store_is_read_in_another_process(tmp_path, start_method):
    write_store(tmp_path)
    store, rows = FeatureStore(tmp_path), np.array([2, 5])
    expected = store.read(rows)[0].sum()
    context = multiprocessing.get_context(start_method)
    queue = context.Queue()
    process = context.Process(target=send_sum, args=(pickle.loads(pickle.dumps(store)), rows, queue))
    process.start()
    assert queue.get(timeout=600) == expected
    process.join()


@pytest.mark.parametrize("name", ["pooled", "regions", "region_count"])
def test_a_changed_value_is_reported_with_its_row(tmp_path, name):
    write_store(tmp_path, images=600)
    with h5py.File(tmp_path / "features.h5", "r+") as file:
        file[name][517] = file[name][517] * 2 + 1
    with pytest.raises(UserError, match=r"features.h5, row 517: the checksum differs"):
        FeatureStore(tmp_path).read(np.array([3, 517, 4]))
    store = FeatureStore(tmp_path)
    if name == "pooled":
        with pytest.raises(UserError, match=r"features.h5, row 517: the checksum differs"):
            store.pooled(np.array([517]))
    else:
        store.pooled(np.array([517]))  # the pooled vector is undamaged
    assert len(store.read(np.array([3, 4]))[0]) == 2


def test_a_row_is_compared_once(tmp_path, monkeypatch):
    write_store(tmp_path)
    store, compared = FeatureStore(tmp_path), []
    checksums = feature_store._compute_checksums
    monkeypatch.setattr(feature_store, "_compute_checksums", lambda *v: compared.append(len(v[0])) or checksums(*v))
    for rows in ([3, 1], [1, 2, 3], [2, 3], [2, 2]):
        store.read(np.array(rows))
    store.pooled(np.array([2, 3]))
    store.pooled(np.array([3, 2]))
    assert compared == [2, 1, 2]


def write_three_of_ten(folder, act=lambda: None):
    pooled, regions, _ = make_features()
    with FeatureWriter(folder, 10, 6, (4, 3)) as store:
        store.write(np.arange(3), pooled[:3], regions[:3])
        act()


def test_an_interrupted_writer_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_three_of_ten(tmp_path, act=lambda: 1 / 0)
    with pytest.raises(UserError, match="row 3 was never written"):
        write_three_of_ten(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_value_beyond_half_precision_is_refused(tmp_path):
    pooled, regions, _ = make_features()
    pooled[1, 2] = 70_000
    with (
        pytest.raises(UserError, match="row 8: a feature is infinite or NaN"),
        FeatureWriter(tmp_path, 10, 6, (4, 3)) as store,
    ):
        store.write(np.array([5, 8]), pooled[:2], regions[:2])


def test_a_store_that_is_missing_broken_or_of_another_manifest_is_reported(tmp_path):
    with pytest.raises(UserError, match="there are no features; run the features stage"):
        FeatureStore(tmp_path)
    write_store(tmp_path / "a", images=10)
    write_store(tmp_path / "b", images=9)
    (tmp_path / "a" / "manifest.json").write_bytes((tmp_path / "b" / "manifest.json").read_bytes())
    with pytest.raises(UserError, match="the manifest belongs to another store"):
        FeatureStore(tmp_path / "a")
    manifest = tmp_path / "a" / "manifest.json"
    write_store(tmp_path / "a", images=10)
    manifest.write_text(manifest.read_text().replace('"crc"', '"mirrored": true, "crc"'))
    with pytest.raises(UserError, match=r"manifest\.json: .*bytes have changed; run the features stage again"):
        FeatureStore(tmp_path / "a")
    file = tmp_path / "b" / "features.h5"
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(UserError, match="not a complete feature store"):
        FeatureStore(tmp_path / "b")


def test_no_flipped_bit_changes_the_features_or_gives_a_traceback(tmp_path):
    """A bit flipped in every seventh byte in turn gives an error that names the file, or changes no feature."""
    write_store(tmp_path)
    path, rows = tmp_path / "features.h5", np.arange(10)
    whole, expected = path.read_bytes(), FeatureStore(tmp_path).read(rows)
    messages = []
    for position in range(0, len(whole), 7):
        broken = bytearray(whole)
        broken[position] ^= 16
        path.write_bytes(broken)
        try:
            store = FeatureStore(tmp_path)
            found = store.read(rows), store.pooled(rows)
        except UserError as error:
            messages.append(str(error))
        else:
            for values, expectation in zip(found[0], expected, strict=True):
                np.testing.assert_array_equal(values, expectation)
            np.testing.assert_array_equal(found[1], expected[0])
    assert len(messages) > 100
    assert all("features.h5" in message for message in messages)


def test_a_disk_without_room_is_reported_before_extraction(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10 * (2 * 6 + 2 * 12 + 4 + 4 + 4) - 1))
    with pytest.raises(OSError, match="No space left on device"), FeatureWriter(tmp_path, 10, 6, (4, 3)):
        raise AssertionError("the writer was opened")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10 * (2 * 6 + 2 * 12 + 4 + 4 + 4)))
    with FeatureWriter(tmp_path, 10, 6, (4, 3)) as store:
        store.write(np.arange(10), np.zeros((10, 6)), np.zeros((10, 4, 3)))
