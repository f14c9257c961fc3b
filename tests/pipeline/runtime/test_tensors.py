"""Safetensors files from elsewhere: missing, damaged, of a dtype that NumPy or PyTorch lacks, or not finite."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.errors import UserError
from pipeline.runtime import tensors
from pipeline.runtime.tensors import read_shapes, read_tensors


def write_tensor(path: Path, kind: str, shape: list[int], content: bytes) -> Path:
    """Write a file with one tensor `a` of a dtype that NumPy may lack."""
    header = json.dumps({"a": {"dtype": kind, "shape": shape, "data_offsets": [0, len(content)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)
    return path


def test_tensors_of_a_prefix_and_all_shapes_are_read(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"one.w": np.ones((2, 3), np.float16), "two.w": np.zeros(4, np.int64)}, path, {"note": "x"})
    metadata, found = read_tensors(path, "write it again", "one.", "np")
    assert metadata == {"note": "x"}
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"w": [[1, 1, 1], [1, 1, 1]]}
    assert read_shapes(path, "write it again") == {"one.w": (2, 3), "two.w": (4,)}


@pytest.mark.parametrize(("framework", "kind"), [("pt", "F4"), ("pt", "F6_E2M3"), ("np", "BF16"), ("np", "F4")])
def test_dtypes_that_numpy_or_pytorch_lacks_are_reported(tmp_path, framework, kind):
    bits = {"F4": 4, "F6_E2M3": 6, "BF16": 16}[kind]
    path = write_tensor(tmp_path / "a.safetensors", kind, [64], bytes(8 * bits))
    with pytest.raises(UserError, match=r"or it has a dtype that NumPy or PyTorch lacks \(.*\); write it again$"):
        read_tensors(path, "write it again", framework=framework)
    assert read_shapes(path, "write it again") == {"a": (64,)}


def test_numbers_beyond_single_precision_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"x.a": np.array([1e300])}, path)
    for framework in ("pt", "np"):
        with pytest.raises(
            UserError, match=r"x\.a contains NaN or a value that is infinite in single precision; write it again$"
        ):
            read_tensors(path, "write it again", "x.", framework)


def test_a_header_above_the_limit_is_refused(tmp_path, monkeypatch):
    path = write_tensor(tmp_path / "a.safetensors", "F32", [4], bytes(16))
    monkeypatch.setattr(tensors, "MAX_HEADER_BYTES", 20)
    for read in (read_tensors, read_shapes):
        with pytest.raises(UserError, match=r"header of \d+ bytes; expected 1 to 20\); write it again$"):
            read(path, "write it again")


def test_both_readers_report_missing_and_damaged_files_alike(tmp_path):
    whole = write_tensor(tmp_path / "a.safetensors", "F32", [4], bytes(16)).read_bytes()
    for content in (b"", whole[:5], whole[:30], whole[:-1], bytes(8) + whole[8:], b"\xff" * 8 + whole[8:]):
        (tmp_path / "b.safetensors").write_bytes(content)
        for read in (read_tensors, read_shapes):
            with pytest.raises(UserError, match="not a complete safetensors file"):
                read(tmp_path / "b.safetensors", "write it again")
    for read in (read_tensors, read_shapes):
        with pytest.raises(UserError, match=r"none: no such file of weights; write it again$"):
            read(tmp_path / "none", "write it again")
