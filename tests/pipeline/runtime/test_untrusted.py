"""Untrusted files: paths, HDF5 arrays and .npy bytes with false claims."""

import io
import os

import h5py
import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.runtime import untrusted
from pipeline.runtime.untrusted import read_dataset, read_npy, require_plain_file, resolve_inside


@pytest.mark.parametrize("name", ["../x.jpg", "a/../../x.jpg", "/etc/passwd", "C:\\x.jpg", "a\\..\\..\\x.jpg", "a\0b"])
def test_a_name_that_leads_outside_is_refused(tmp_path, name):
    with pytest.raises(UserError, match=r"leads outside .*, is absolute or has a part \.\.; put the file itself"):
        resolve_inside(tmp_path, name)


def test_a_link_may_stay_inside_and_not_lead_outside(tmp_path):
    (tmp_path / "images/part").mkdir(parents=True)
    (tmp_path / "secret.jpg").touch()
    (tmp_path / "images/part/a.jpg").touch()
    (tmp_path / "images/b.jpg").symlink_to("part/a.jpg")
    (tmp_path / "images/c.jpg").symlink_to("../secret.jpg")
    (tmp_path / "images/all").symlink_to(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "images")
    assert resolve_inside(tmp_path / "images", "part/a.jpg").exists()
    assert resolve_inside(tmp_path / "images", "b.jpg").exists()
    assert resolve_inside(tmp_path / "linked", "part/a.jpg").exists()
    for name in ("c.jpg", "all/secret.jpg"):
        with pytest.raises(UserError, match=r"leads outside .*, is absolute or has a part \.\.; put the file itself"):
            resolve_inside(tmp_path / "images", name)


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(UserError, match="expected a plain file, got a folder, a pipe or a device"):
            require_plain_file(path)
    assert require_plain_file(tmp_path / "missing") == tmp_path / "missing"


@pytest.fixture
def hdf5(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.arange(3.0)
    (tmp_path / "raw").write_bytes(b"secret!!" * 3)
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["own"] = file["group/own"] = np.arange(3.0)
        file["external"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "x")
        file["soft"] = h5py.SoftLink("/own")
        file["words"] = np.array([b"a"])
        file["empty"] = h5py.Empty("f4")
        file["type"] = np.dtype("f8")
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((3,)))
        file.create_dataset("raw", (3,), "f8", external=[(str(tmp_path / "raw"), 0, 24)])
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (3,))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("endless", (2**40,), "f4")
        file.create_dataset("packed", (2**30,), "u1", chunks=(2**26,), compression="gzip")
        file.create_dataset("zeros", data=np.zeros(2**20), chunks=True, compression="gzip")
    with h5py.File(tmp_path / "file.h5") as file:
        yield file


def test_arrays_of_the_file_itself_are_read(hdf5):
    for name in ("own", "group/own", "./own", "group/./own"):
        assert read_dataset(hdf5, name)[:].tolist() == [0, 1, 2]
    assert len(read_dataset(hdf5, "zeros")) == 2**20  # compressed in the file, but below the limit
    for name in ("nothing", "own/x", "group/x", "type/x"):
        with pytest.raises(KeyError):
            read_dataset(hdf5, name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("external", "is a link"),
        ("soft", "is a link"),
        ("raw", "lies in another file"),
        ("virtual", "lies in another file"),
        ("words", "is not an array of numbers"),
        ("group", "is not an array of numbers"),
        (".", "is not an array of numbers"),
        ("empty", "is not an array of numbers"),
        ("type", "is not an array of numbers"),
        ("time", "is not an array of numbers"),
        ("endless", "claims to have 4,398,046,511,104 bytes"),
        ("packed", "claims to have 1,073,741,824 bytes"),
    ],
)
def test_arrays_of_other_files_and_with_false_sizes_are_refused(hdf5, name, message):
    with pytest.raises(UserError, match=message):
        read_dataset(hdf5, name)


def test_only_arrays_far_larger_than_their_stored_bytes_are_refused_above_the_limit(hdf5, monkeypatch):
    monkeypatch.setattr(untrusted, "MAX_ARRAY_BYTES", 20)
    assert len(read_dataset(hdf5, "own")) == 3
    with pytest.raises(UserError, match="zeros claims to have 8,388,608 bytes"):
        read_dataset(hdf5, "zeros")


def encode_npy(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    "values", [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(1.5)]
)
def test_an_array_is_read_as_numpy_wrote_it(values):
    assert np.array_equal(read_npy(encode_npy(values)), values)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        encode_npy(np.arange(3))[:-1],
        encode_npy(np.arange(3)) + b"x",
        encode_npy(np.array([object()])),
        encode_npy(np.arange(3)).replace(b"(3,)", b"(9,)"),
        encode_npy(np.arange(3)).replace(b"(3,), ", b"(-3,),"),
        encode_npy(np.arange(3)).replace(b"'<i8'", b"'<Q9'"),
        encode_npy(np.arange(3)).replace(b"{'descr'", b"((((((((("),
        encode_npy(np.arange(3)).replace(b"\x01\x00", b"\x09\x00", 1),
    ],
)
def test_invalid_arrays_raise_one_type_of_error(content):
    with pytest.raises(ValueError):  # noqa: PT011
        read_npy(content)


@pytest.mark.parametrize(
    "content", [encode_npy(np.array([object()])), encode_npy(np.arange(1)).replace(b"'<i8',", b"'|O', ")]
)
def test_python_objects_are_refused_before_they_are_read(content):
    with pytest.raises(ValueError, match="an array of Python objects"):
        read_npy(content)
