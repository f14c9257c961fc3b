"""An untrusted parameter file cannot run a command, replace a folder or load a pickle."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import PIL.Image
import pytest
import yaml
from preloaded_python import find_program
from toy_world import UNFINISHED
from whole_profiles import NAMES, load_profile, read_profile_text

from pipeline.config.name_checks import check_names, read_checked_names
from pipeline.config.reading import parse_yaml, read_mapping
from pipeline.errors import UserError
from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.listener import Listener
from pipeline.readers import read_corpus

ROOT = Path(__file__).parents[1]
SHELL = "scenes; touch made #"


def catch_name_error(tmp_path: Path, **sections: object) -> str:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(sections))
    with pytest.raises(UserError) as error:
        read_checked_names(path)
    return str(error.value)


@pytest.mark.parametrize("name", [SHELL, "$(touch made)", "../../pipeline", "a b", "", "x\n", "ü", 1, None])
def test_names_are_checked_in_every_section(tmp_path, name):
    for section in ("draw", "features", "pretrain", "methods"):
        assert "names consist of letters" in catch_name_error(tmp_path, **{section: {name: {}}})
    assert "names consist of letters" in catch_name_error(tmp_path, sweep={"grid": {name: {}}})
    assert "names consist of letters" in catch_name_error(tmp_path, sweep={"grid": {"psst": [{name: [1]}]}})
    if name is not None:
        assert "names consist of letters" in catch_name_error(tmp_path, pretrain={"listener": {"features": name}})


@pytest.mark.parametrize("section", ["draw", "features", "pretrain", "methods", "sweep"])
def test_a_section_that_is_no_mapping_is_reported_in_one_line(tmp_path, section):
    key, value = ("sweep.grid", {"grid": "psst"}) if section == "sweep" else (section, "psst")
    message = f'{tmp_path}/params.yaml: {key}: must be a mapping of names, and is "psst"'
    assert message in catch_name_error(tmp_path, **{section: value})


@pytest.mark.parametrize("number", [str(2**64), "1" + "0" * 5000])
def test_a_too_large_number_is_reported_in_one_line(number):
    assert parse_yaml(f"seed: {2**64 - 1}", "params.yaml") == {"seed": 2**64 - 1}
    with pytest.raises(UserError, match="digits"):
        parse_yaml(f"deep: [1, {{seed: {number}}}]", "params.yaml")


def test_names_of_every_profile_are_allowed():
    for name in NAMES:
        # CSafeLoader is twenty times as fast as DVC's parser
        check_names(yaml.load(read_profile_text(name), yaml.CSafeLoader), Path(name))


def test_an_address_as_root_is_refused(tmp_path):
    assert "is an address" in catch_name_error(tmp_path, prepare={"root": "s3://bucket/x"})


def test_dvc_yaml_inserts_no_name_into_a_command():
    stages = read_mapping(ROOT / "dvc.yaml")["stages"]
    assert not [cmd for block in stages.values() if "${" in (cmd := block.get("do", block)["cmd"])]


@pytest.fixture
def repository(tmp_path) -> Path:
    """Make the files that DVC needs, with a params.yaml whose names are commands and paths out of data/."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    for name in ("dvc.yaml", "Snakefile"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("pipeline", "stages"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=UNFINISHED)
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep/mine.txt").write_text("not to be replaced\n")
    hostile = load_profile("scenes") | {
        "draw": {SHELL: {}, "../../keep": {}},
        "methods": {f"psst{SHELL}": {"from": "psst", "speaker": "speaker"}},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(hostile))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("pipeline.workflow.repro",),
        ("dvc", "repro"),
        ("dvc", "repro", "--single-item", f"draw@{SHELL}"),
        ("snakemake", "--cores", "1"),
    ],
    ids=["make repro", "dvc repro", "dvc repro of one stage", "snakemake"],
)
def test_a_name_with_a_command_is_not_executed(repository, command):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(repository)}
    done = subprocess.run(
        [find_program("python"), "-m", *command], cwd=repository, env=environment, capture_output=True, text=True
    )
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert not list(repository.rglob("made*")), printed
    assert (repository / "keep/mine.txt").exists(), printed
    if "--single-item" not in command:
        assert "names consist of letters, digits and underscores" in printed


class TouchPickle:
    """An object whose unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("network", ["open_clip/ViT-S-32-alt", "resnet18", "torchvision/resnet18"])
def test_network_options_load_no_pickle(tmp_path, network):
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(TouchPickle(tmp_path / "made")))
    path = str(tmp_path / "evil.pt")
    for options in ({"pretrained": path, "weights_only": False}, {"checkpoint_path": path}, {"pretrained_cfg": path}):
        with pytest.raises(UserError, match="does not accept"):
            open_network(NetworkSettings(network, 32, str(tmp_path / "weights.safetensors"), options))
    assert not (tmp_path / "made").exists()


def test_weights_with_the_path_of_a_pickle_load_none(tmp_path):
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(TouchPickle(tmp_path / "made")))
    for architecture, options in (
        ("ViT-S-32-alt", {"pretrained": str(tmp_path / "evil.pt"), "weights_only": False}),
        (f"local-dir:{tmp_path}", {}),
    ):
        arguments = {"architecture": architecture, "options": options, "features": "main"}
        encoder = type("DualEncoder", (Listener,), {})(12, 5, words=6, hidden=10)  # the file names this class
        encoder.arguments = arguments
        save_agents(tmp_path / "weights.safetensors", {"judge": encoder})
        with pytest.raises(UserError, match=r"does not accept|has no network"):
            load_agent(tmp_path / "weights.safetensors", "judge")
    assert not (tmp_path / "made").exists()


def write_corpus(folder: Path, form: str, file: str) -> dict:
    """Write a corpus of six images, without the first image `file`; return the arguments of `read_corpus`."""
    names = [file, *(f"{number}.png" for number in range(1, 6))]
    splits = ["train", "train", "val", "val", "test", "test"]
    (folder / "images").mkdir()
    for name in names[1:]:
        PIL.Image.new("RGB", (4, 4)).save(folder / "images" / name)
    rows = [
        {
            "filename": name, "file_path": name, "file_name": name, "split": split, "id": number,
            "sentences": [{"raw": f"ball {number}"}],
        }
        for number, (name, split) in enumerate(zip(names, splits, strict=True))
    ]  # fmt: skip
    captions = [{"id": row["id"], "image_id": row["id"], "caption": "a ball"} for row in rows]
    if form == "karpathy":
        (folder / "a.json").write_text(json.dumps({"images": rows}))
        return {"annotations": "a.json"}
    if form == "coco":
        (folder / "a.json").write_text(json.dumps({"images": rows, "annotations": captions}))
        (folder / "s.json").write_text(
            json.dumps({"images": [{key: row[key] for key in ("id", "split")} for row in rows]})
        )
        return {"annotations": ["a.json"], "splits": "s.json"}
    if form == "flickr8k":
        (folder / "captions").write_text("".join(f"{name}#0\ta ball {number}\n" for number, name in enumerate(names)))
        for split in ("train", "val", "test"):
            listed = [name for name, own in zip(names, splits, strict=True) if own == split]
            (folder / split).write_text("".join(f"{name}\n" for name in listed))
        return {"annotations": {key: key for key in ("captions", "train", "val", "test")}}
    if form == "folder":
        lines = [
            f"{name},a ball {number},{split}" for number, (name, split) in enumerate(zip(names, splits, strict=True))
        ]
        (folder / "a.csv").write_text("file,caption,split\n" + "\n".join(lines))
        return {"annotations": "a.csv"}
    words = {"1": "ball", "2": "UNK"}
    (folder / "a.json").write_text(json.dumps({"images": rows, "ix_to_word": words}))
    with h5py.File(folder / "labels.h5", "w") as labels:
        labels["labels"] = np.ones((6, 1), np.int64)
        labels["label_start_ix"] = labels["label_end_ix"] = np.arange(1, 7)
    return {"annotations": {"json": "a.json", "labels": "labels.h5"}}


FORMS = ["karpathy", "coco", "flickr8k", "cocotalk", "folder"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file", ["../secret.png", "{}/secret.png", "link.png"])
def test_no_image_is_read_outside_the_folder_of_images(tmp_path, form, file):
    PIL.Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    folder = tmp_path / "data"
    folder.mkdir()
    arguments = write_corpus(folder, form, file.format(tmp_path))
    (folder / "images/link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(UserError, match=r"(lies|leads) outside "):  # `tmp_path` holds the word "outside", too
        read_corpus("x", form, folder, images=folder / "images", **arguments)


@pytest.mark.parametrize("form", FORMS)
def test_images_within_the_folder_are_read(tmp_path, form):
    arguments = write_corpus(tmp_path, form, "0.png")
    PIL.Image.new("RGB", (4, 4)).save(tmp_path / "images/0.png")
    assert len(read_corpus("x", form, tmp_path, images=tmp_path / "images", **arguments).images) == 6
