"""A folder with changed files is reported with the file's name."""

import json
import math

import pytest

from pipeline.errors import UserError
from pipeline.runtime.checksums import (
    CHECKSUMS,
    check_checksums,
    check_history,
    read_checksummed_json,
    serialise_with_checksum,
    write_checksums,
)
from pipeline.runtime.files import compute_sha256


def test_a_file_that_is_changed_emptied_swapped_or_missing_is_named(tmp_path):
    check_checksums(tmp_path, "again")  # the folder has no checksums yet
    with pytest.raises(UserError, match=CHECKSUMS):
        check_checksums(tmp_path, "again", required=True)
    for name in "ab":
        (tmp_path / name).write_text(name * 100)
    (tmp_path / ".b.1234.part").touch()
    write_checksums(tmp_path)
    (tmp_path / ".b.1234.part").unlink()  # a half-written file has no checksum
    check_checksums(tmp_path, "again")
    for content in ("b" * 99 + "c", "b" * 99, "", "a" * 100, None):
        (tmp_path / "b").unlink() if content is None else (tmp_path / "b").write_text(content)
        with pytest.raises(UserError, match=r"/b: is missing, or its bytes .*; again"):
            check_checksums(tmp_path, "again")
    (tmp_path / "b").write_text("b" * 100)
    for content in ("", "[]", '{"a": 1'):
        (tmp_path / CHECKSUMS).write_text(content)
        with pytest.raises(UserError, match=CHECKSUMS):
            check_checksums(tmp_path, "again")


def test_a_file_in_a_folder_below_is_named(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/1.jpg").write_text("one")
    write_checksums(tmp_path)
    check_checksums(tmp_path, "again")
    (tmp_path / "images/1.jpg").write_text("two")
    with pytest.raises(UserError, match=r"images/1\.jpg: is missing, or"):
        check_checksums(tmp_path, "again")


def test_a_change_of_any_byte_of_a_json_file_is_detected(tmp_path):
    path, content = tmp_path / "metrics.json", {"é": [0.1, math.inf], "captions_sha256": "0" * 63 + "1", "n": {"a": 1}}
    path.write_text(serialise_with_checksum(content))
    assert read_checksummed_json(path, "again") == content
    assert list(json.loads(path.read_text())) == [*content, "sha256"]
    whole = path.read_bytes()
    flipped = (whole[:i] + bytes([byte ^ 1 << i % 8]) + whole[i + 1 :] for i, byte in enumerate(whole))
    for damaged in (*flipped, b"", whole[:-1], json.dumps(content).encode(), None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"metrics\.json: .*; again"):
            read_checksummed_json(path, "again")


def test_zeros_in_the_content_of_a_json_file_stay_zeros(tmp_path):
    path, content = tmp_path / "metrics.json", {"zeros": "0" * 64, "longer": ["0" * 200]}
    path.write_text(serialise_with_checksum(content))
    assert read_checksummed_json(path, "again") == content


def test_a_history_of_another_training_is_detected(tmp_path):
    weights, history = tmp_path / "weights.safetensors", tmp_path / "history.jsonl"
    history.write_text("{}\n")
    header = json.dumps({"__metadata__": {"agents": json.dumps({"history": [history.name, compute_sha256(history)]})}})
    weights.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    check_history(weights)
    history.write_text("{} \n")
    with pytest.raises(UserError, match=r"weights\.safetensors: is not from the same training as .*history\.jsonl"):
        check_history(weights)
    history.unlink()
    check_history(weights)


def test_a_history_without_a_file_name_passes(tmp_path):
    weights = tmp_path / "weights.safetensors"
    for name in ("", ".", "/"):
        header = json.dumps({"__metadata__": {"agents": json.dumps({"history": [name, "0" * 64]})}})
        weights.write_bytes(len(header).to_bytes(8, "little") + header.encode())
        check_history(weights)


def test_only_the_named_files_of_a_folder_are_checked(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(name)
    write_checksums(tmp_path)
    (tmp_path / "b").write_text("another")
    (tmp_path / "d").touch()
    check_checksums(tmp_path, "again", only=("a", "nothing"))
    for only in (("a", "b"), ("a", "d")):
        with pytest.raises(UserError, match=f"/{only[1]}: is missing, or its bytes"):
            check_checksums(tmp_path, "again", only=only)
