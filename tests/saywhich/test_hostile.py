"""Hostile exported folders give a model, or one line within bounded memory and time."""

import json
import shutil

import pytest
import torch
from hostile_exports import change_agents, refresh_digests, try_hostile_values
from safetensors.torch import load_file, save_file

import saywhich
from pipeline.errors import UserError
from pipeline.runtime.checksums import serialise_with_checksum

DRAWS = 6


@pytest.fixture
def folder(exported_model, tmp_path):
    shutil.copytree(exported_model, tmp_path / "out")
    return tmp_path / "out"


def load_failing_model(folder) -> str:
    """Load a model, which must fail, and return the one line of the error."""
    with pytest.raises(UserError) as caught:
        saywhich.load(folder)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_hostile_values_and_tensors_give_a_model_or_one_line(folder, photos):
    saywhich.load(folder).caption([photos / "a.jpg"])  # this call imports the modules that a first use needs
    assert not [outcome for outcome in try_hostile_values(folder, photos / "a.jpg", DRAWS) if outcome]


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("preprocessing.input_size", [3, 100_000, 100_000]),
        ("cells", 10**6),
        ("frames", 10**9),
        ("boxes", {"fixed": 10**9}),
        ("boxes", {"min_boxes": 1, "max_boxes": 2}),
        ("mirrored", "yes"),
        ("projection.file", "../weights.safetensors"),
        ("network", "a\nb"),
        ("unknown", 1),
    ],
)
def test_an_invalid_entry_of_a_manifest_is_named(folder, entry, value):
    path = folder / "features/manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]  # the new digest is written as the last entry
    *parents, key = entry.split(".")
    inner = manifest
    for name in parents:
        inner = inner[name]
    inner[key] = value
    path.write_text(serialise_with_checksum(manifest))
    refresh_digests(folder, path)
    assert load_failing_model(folder).startswith(f"{path}: {entry}")


@pytest.mark.parametrize(
    ("entry", "value", "line"),
    [
        ("max_words", 10**9, "max_words is 1000000000, and 1,000 is the largest possible"),
        ("hidden", 2**24, "expected shape .*, got"),
        ("hidden", "8", "hidden: Input should be a valid integer"),
        ("dropout", None, "dropout: Input should be a valid number"),
        ("path", "x", "path: Extra inputs are not permitted"),
    ],
)
def test_arguments_of_weights_have_types_and_ranges(folder, entry, value, line):
    with change_agents(folder) as agents:
        agents["speaker"]["arguments"][entry] = value
    with pytest.raises(UserError, match=line):
        saywhich.load(folder)


def test_agents_of_another_kind_and_parts_of_another_model_are_named(folder):
    path = folder / "vocabulary.json"
    path.write_text(json.dumps({"words": ["a", "UNK"]}))
    refresh_digests(folder, path)
    assert "the speaker's vocabulary has 8 words, and the files beside it have 2" in load_failing_model(folder)
    with change_agents(folder) as agents:
        agents["speaker"]["kind"] = "DualEncoder"
    assert "speaker is a DualEncoder, and must be one of Att2in" in load_failing_model(folder)


@pytest.mark.parametrize("name", ["projection", "scale", "network"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_nan_and_infinity_are_refused_in_every_file_of_features(folder, name, number):
    path, manifest_path = folder / f"features/{name}.safetensors", folder / "features/manifest.json"
    tensors = load_file(path)
    first = next(key for key, tensor in tensors.items() if tensor.is_floating_point())
    tensors[first].view(-1)[0] = number
    save_file(tensors, path)
    refresh_digests(folder, path)
    manifest = json.loads(manifest_path.read_text())
    manifest["weights" if name == "network" else name]["sha256"] = json.loads((folder / "saywhich.json").read_text())[
        "files"
    ][f"features/{name}.safetensors"]
    manifest_path.write_text(serialise_with_checksum(manifest))
    refresh_digests(folder, manifest_path)
    assert f"{path}: {first} contains NaN or a value that is infinite" in load_failing_model(folder)


def test_digests_cover_files_of_the_folder_and_all_files_read(folder):
    index = folder / "saywhich.json"
    whole = json.loads(index.read_text())
    (folder.parent / "secret").write_text("x")
    index.write_text(serialise_with_checksum(whole | {"files": whole["files"] | {"../secret": "0" * 63 + "1"}}))
    assert "leads outside" in load_failing_model(folder)
    unlisted = {name: digest for name, digest in whole["files"].items() if name != "vocabulary.json"}
    index.write_text(serialise_with_checksum(whole | {"files": unlisted}))
    assert load_failing_model(folder).startswith(f"{index}: has no digest of vocabulary.json")
