"""The stages train and evaluate a speaker on ten pictures and a CSV of captions, with the profile folder."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image, ImageDraw
from safetensors.torch import load_file
from stage_runs import run_stage, run_stages
from whole_profiles import load_profile

from pipeline.runtime.checksums import find_changed_input

ROOT = Path(__file__).parents[1]
COLOURS = ("red", "green", "blue", "yellow", "black")
SHAPES = {"ball": "ellipse", "box": "rectangle"}
COUNTS = {"train": 6, "val": 2, "test": 2}


def draw_photos(folder: Path) -> None:
    """Draw ten pictures of five colours and two shapes in various sizes and formats, with two captions each."""
    rows = []
    for i, (colour, shape) in enumerate((colour, shape) for colour in COLOURS for shape in SHAPES):
        kind, mode = (("jpg", "RGB"), ("png", "RGBA"), ("png", "P"))[i % 3]
        file = folder / ("holiday/day 1" if i % 2 else "") / f"{i}.{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = (60 + 17 * i, 160 - 11 * i)
        image = Image.new("RGB", size, "white")
        getattr(ImageDraw.Draw(image), SHAPES[shape])((5, 5, size[0] - 9, size[1] - 9), fill=colour)
        image.convert(mode).save(file)
        name = file.relative_to(folder).as_posix()
        rows += [(name, f"A {colour} {shape}, on white."), (name, f"the {shape} is {colour}")]
    with open(folder / "captions.csv", "w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([("file", "caption"), *rows])


def shrink_profile(params: dict) -> dict:
    """Return the profile with one epoch per training and small sizes."""
    params["prepare"]["shares"]["seed"] = 4  # gives six photos to train, two to val and two to test
    params["features"]["main"]["detector"] |= {"epochs": 1, "width": 4}
    params["features"]["main"] |= {"image_size": 32, "grid_size": None}
    one_epoch = {"epochs": 1, "validate_every": 1, "min_steps": 0}
    for role in ("listener", "speaker", "judge"):
        params["pretrain"][role] |= {"word_dim": 8, "hidden_dim": 8}
        params["pretrain"][role]["optimisation"] |= one_epoch
    params["pretrain"]["speaker"]["attention_dim"] = 8
    for section in ("train", "adapt"):
        params[section]["optimisation"] |= one_epoch
    params["evaluate"]["metrics"] = ["CIDEr"]  # METEOR takes seconds to start
    return params


def enter_photo_repository(folder: Path, params: dict, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write parameters and photos to `folder`, make it the working folder, and return the folder of the photos."""
    photos = run_stages(folder, params) / "data/external/photos"
    draw_photos(photos)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    return photos


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Make a working folder with photos at the profile's path, and return the folder of the photos."""
    folder = enter_photo_repository(tmp_path, shrink_profile(load_profile("folder")), monkeypatch)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


def test_files_of_an_earlier_corpus_do_not_stay_in_the_prepared_folder(photos):
    earlier = ("rounds.parquet", "answers.parquet", "objects.json", "facts.jsonl", "films.jsonl", "tokenizer.json")
    Path("data/prepared").mkdir()
    for name in earlier:
        Path("data/prepared", name).write_text("{}", encoding="utf-8")
    assert run_stage("prepare") == 0
    assert [name for name in earlier if Path("data/prepared", name).exists()] == []


def test_document_frequencies_of_an_earlier_corpus_do_not_outlive_an_interruption(photos, monkeypatch):
    frequencies = Path("data/prepared/document_frequencies.parquet")
    assert run_stage("prepare") == 0
    assert frequencies.exists()

    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.metrics.cider.compute_document_frequencies", interrupt)
    assert run_stage("prepare") == 130
    assert Path("data/prepared/manifest.json").exists()
    assert not frequencies.exists()


def test_ten_own_photos_are_prepared_trained_on_and_evaluated(photos, capfd):
    assert run_stage("prepare") == 0
    images = pq.read_table("data/prepared/images.parquet").to_pydict()
    assert sorted(images["file"]) == sorted(
        path.relative_to(photos).as_posix() for path in photos.rglob("*.*g") if path.is_file()
    )
    assert {split: images["split"].count(split) for split in ("train", "val", "test")} == COUNTS
    assert run_stage("features") == 0
    warning = " ".join(capfd.readouterr().err.split())
    assert "a word detector is trained on these images instead (features.main.detector)" in warning
    assert "run `dvc repro -f features@main`" in warning
    assert json.loads(Path("data/features/main/manifest.json").read_text())["network"] == "word_detector"
    for role in ("listener", "speaker", "judge"):
        assert run_stage("pretrain", "--role", role) == 0
    for stage in ("train", "adapt", "evaluate"):
        assert run_stage(stage, "--method", "psst_multinomial") == 0
    weights, vocabulary = (
        Path("data/models/psst_multinomial/weights.safetensors"),
        Path("data/prepared/vocabulary.json"),
    )
    assert find_changed_input(weights, Path("data")) is None
    content = vocabulary.read_bytes()
    vocabulary.write_bytes(content + b" ")
    assert find_changed_input(weights, Path("data")) == vocabulary
    vocabulary.write_bytes(content)
    metrics = json.loads(Path("data/evaluation/psst_multinomial/metrics.json").read_text())
    assert metrics["test"]["images"] == COUNTS["test"]
    for judge in ("own", "adapted", "pretrained", "judge"):
        assert 0 <= metrics["test"]["judges"][judge]["text_to_image"]["R@1"] <= 100
    captions = pq.read_table("data/evaluation/psst_multinomial/captions.parquet").to_pydict()
    assert captions["split"].count("test") == COUNTS["test"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "prepare.shares.seed=0",
            "the random draw puts fewer than two of 10 images in val, and two are needed; with seed: 4 each",
        ),
        ("prepare.expected_counts={train: 90}", "captions.csv: train has 6 images and 90 are expected"),
        ("prepare.expected_counts={words: 9487}", "9487 are expected (prepare.expected_counts.words)"),
        ("prepare.shares=null", "there is no column split"),
        ("prepare.annotations=none.csv", "the table is missing"),
    ],
)
def test_invalid_settings_of_own_photos_are_reported_in_one_line_and_nothing_is_written(
    photos, capfd, override, message
):
    assert run_stage("prepare", "--set", override) == 2
    printed = capfd.readouterr().err.strip().splitlines()[-1]
    assert message in printed
    assert not Path("data/prepared").exists()


@pytest.mark.slow
def test_two_processes_train_the_same_weights_as_one(photos, tmp_path):
    assert run_stage("prepare") == run_stage("features") == 0
    for role in ("listener", "speaker"):
        assert run_stage("pretrain", "--role", role) == 0
    assert run_stage("train", "--method", "psst_multinomial", "--out", "single") == 0
    environment = os.environ | {"SAYWHICH_PROCESSES": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "stages.train", "--method", "psst_multinomial", "--out", "double"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    single, double = (load_file(Path(folder) / "weights.safetensors") for folder in ("single", "double"))
    assert single.keys() == double.keys()
    for name in single:
        torch.testing.assert_close(double[name], single[name], atol=1e-5, rtol=1e-4)
    checkpoints = [path for path in Path("data/checkpoints").glob("*/*") if path.parent.name != "processor_seconds"]
    assert not checkpoints


def test_an_invalid_number_of_processes_is_reported_in_one_line(photos, monkeypatch, capfd):
    monkeypatch.setenv("SAYWHICH_PROCESSES", "two")
    assert run_stage("train", "--method", "luo") == 2
    assert capfd.readouterr().err == "SAYWHICH_PROCESSES=two: must be a number of processes, 1 or more\n"


@pytest.mark.slow
def test_captions_trained_on_sixty_real_photos_retrieve_them_above_chance(real_data, photos):
    """The profile is changed only in its network, metrics and judges, and one method is trained."""
    images = json.loads((real_data / "flickr8k" / "dataset_flickr8k.json").read_text())["images"][:60]
    shutil.rmtree(photos)
    photos.mkdir()
    with open(photos / "captions.csv", "w", newline="", encoding="utf-8") as table:
        rows = csv.writer(table)
        rows.writerow(("file", "caption"))
        for image in images:
            shutil.copy(real_data / "flickr8k" / "images" / image["filename"], photos)
            rows.writerows((image["filename"], texts["raw"]) for texts in image["sentences"][:3])
    params = load_profile("folder")
    # weights of timm, which need pad_type same
    weights = str(real_data / "weights" / "mobilenetv2_100_imagenet.safetensors")
    params["features"]["main"] |= {
        "weights": weights,
        "options": {"pad_type": "same"},
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "detector": None,
    }
    params["evaluate"] |= {"metrics": ["CIDEr"], "judges": {"own": "own", "judge": "judge"}}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    assert run_stage("prepare") == run_stage("features") == 0
    for role in ("listener", "speaker", "judge"):
        assert run_stage("pretrain", "--role", role) == 0
    for stage in ("train", "evaluate"):
        assert run_stage(stage, "--method", "psst_multinomial") == 0
    metrics = json.loads(Path("data/evaluation/psst_multinomial/metrics.json").read_text())
    relative_ranks = []
    for split, count in (("val", 12), ("test", 10)):
        assert metrics[split]["images"] == count
        for judge in ("own", "judge"):
            rank = metrics[split]["judges"][judge]["text_to_image"]["mean_rank"]
            relative_ranks.append((rank - 1) / (count - 1))  # 0: always first; 1: always last
    # By chance the mean relative rank of 22 images is .5 ± .07. With the profile it is .22 ± .04 over seeds. Rounding
    # on other machines gives other captions, so the threshold lies nearly four of these deviations away.
    assert np.mean(relative_ranks) < 0.37, relative_ranks
    assert metrics["test"]["language"]["CIDEr"] > 0.1
    captions = pq.read_table("data/evaluation/psst_multinomial/captions.parquet").to_pydict()
    texts = [text for text, split in zip(captions["caption"], captions["split"], strict=True) if split == "test"]
    assert min(len(text.split()) for text in texts) > 2
    assert len(set(texts)) > 5
    assert not any("UNK" in text for text in texts)
