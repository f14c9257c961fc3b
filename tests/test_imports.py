"""This project's data, exported in the file formats of other projects, are imported unchanged."""

import base64
import json
import pickle
import shutil
from collections import defaultdict
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from feature_checksums import verify
from PIL import Image
from stage_runs import run_stage
from whole_profiles import load_profile

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import OBJECTS, PreparedData
from pipeline.runtime.files import compute_sha256

ROOT = Path(__file__).parents[1]
WORDS = ["a", "the", "red", "blue", "big", "ball", "dog", "on", "grass"]


def write_own_data(folder: Path) -> None:
    """Write eight pictures with three captions each, in Karpathy's format."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    images = []
    for i in range(8):
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), np.uint8)).save(folder / "images" / f"{i}.png")
        captions = [rng.choice(WORDS, rng.integers(2, 6)).tolist() for _ in range(3)]
        split = ["train", "restval", "train", "val", "test", "train", "val", "test"][i]
        sentences = [{"raw": " ".join(words), "tokens": words} for words in captions]
        images.append({"filename": f"{i}.png", "imgid": 100 + i, "split": split, "sentences": sentences})
    (folder / "dataset.json").write_text(json.dumps({"images": images}))


def export(folder: Path, prepared: PreparedData, store: FeatureStore) -> None:
    """Write the files of self-critical.pytorch's prepro_labels.py, prepro_ngrams.py and prepro_feats.py."""
    ids, splits = prepared.ids.to_pylist(), ["train", "val", "test"]
    images = [
        {"id": int(id_), "file_path": prepared.file(row), "split": splits[prepared.splits[row]]}
        for row, id_ in enumerate(ids)
    ]
    words = {str(i): word for word, i in prepared.vocabulary.ids.items()}
    (folder / "cocotalk.json").write_text(json.dumps({"ix_to_word": words, "images": images}))
    with h5py.File(folder / "cocotalk_label.h5", "w") as file:
        file["labels"] = prepared.tokens.astype(np.uint32)
        file["label_start_ix"] = (prepared.first[:-1] + 1).astype(np.uint32)
        file["label_end_ix"] = prepared.first[1:].astype(np.uint32)
        file["label_length"] = (prepared.tokens > 0).sum(1).astype(np.uint32)
    frequencies: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for image in prepared.rows("train"):
        texts = [[*map(str, caption), "0"] for caption in prepared.captions(image)]
        for ngram in {tuple(text[i : i + n]) for text in texts for n in range(1, 5) for i in range(len(text) - n + 1)}:
            frequencies[ngram] += 1
    content = {"document_frequency": frequencies, "ref_len": len(prepared.rows("train"))}
    (folder / "coco-train-idxs.p").write_bytes(pickle.dumps(content, 2))
    for name in ("fc", "att"):
        (folder / name).mkdir()
    pooled, regions, mask = store.read(np.arange(len(store)))
    for row, id_ in enumerate(ids):
        np.save(folder / "fc" / id_, pooled[row])
        np.savez_compressed(folder / "att" / id_, feat=regions[row][mask[row]])


@pytest.fixture
def world(tmp_path, monkeypatch) -> Path:
    """Return a repository with prepared data and features in `original`, and their exported files in `exported`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    write_own_data(tmp_path / "own")
    params = load_profile("scenes")
    params["prepare"] |= {
        "dataset": "own",
        "root": "own",
        "annotations": "dataset.json",
        "min_count": 2,
        "max_words": 6,
    }
    del params["features"]["judge"]
    params["pretrain"]["judge"]["features"] = "main"
    params["features"]["main"] |= {"network": "word_detector", "image_size": 32, "batch": 4}
    params["features"]["main"]["detector"] |= {"epochs": 0, "width": 4}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    run_prepare_and_features()
    assert not (tmp_path / "data/prepared" / OBJECTS).exists()
    (tmp_path / "exported").mkdir()
    export(
        tmp_path / "exported",
        PreparedData.load(tmp_path / "data" / "prepared"),
        FeatureStore(tmp_path / "data/features/main"),
    )
    (tmp_path / "data").rename(tmp_path / "original")
    params["prepare"] = {
        "dataset": "own",
        "format": "cocotalk",
        "root": "exported",
        "annotations": {"json": "cocotalk.json", "labels": "cocotalk_label.h5"},
        "images": None,
        "max_words": 6,
        "document_frequencies": "coco-train-idxs.p",
    }
    imported = {"format": "npy_folders", "regions": "exported/att", "pooled": "exported/fc", "max_regions": 4}
    params["features"]["main"] = {"network": "imported", "imported": imported}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    return tmp_path


def run_prepare_and_features() -> None:
    assert run_stage("prepare") == run_stage("features") == 0


def test_cocos_instances_are_prepared_for_existing_images(world):
    instances = {
        "images": [{"id": 100}, {"id": 7}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"image_id": image, "category_id": 18} for image in (100, 7)],
    }
    (world / "exported/instances.json").write_text(json.dumps(instances))
    assert run_stage("prepare", "--set", "prepare.instances=[instances.json]") == 0
    prepared = PreparedData.load(world / "data/prepared")
    objects = prepared.annotated_objects(np.arange(len(prepared)))
    assert {id_: names for id_, names in zip(prepared.ids.to_pylist(), objects, strict=True) if names} == {
        "100": ["dog"]
    }


def test_imported_files_give_the_same_tensors_as_the_projects_own_path(world):
    run_prepare_and_features()
    own, imported = (PreparedData.load(world / name / "prepared") for name in ("original", "data"))
    assert imported.vocabulary == own.vocabulary
    assert imported.ids.equals(own.ids)
    assert imported.files.equals(own.files)
    for name in ("splits", "first", "tokens"):
        np.testing.assert_array_equal(getattr(imported, name), getattr(own, name))
    frequencies = [pq.read_table(p.folder / "document_frequencies.parquet") for p in (own, imported)]
    assert frequencies[0].equals(frequencies[1])
    stores = [FeatureStore(world / name / "features/main") for name in ("original", "data")]
    assert stores[0].manifest["crc"] == stores[1].manifest["crc"]  # pooled, regions and their number, bit for bit
    names = ("cocotalk.json", "cocotalk_label.h5", "coco-train-idxs.p")
    assert imported.manifest["inputs"] == {name: compute_sha256(world / "exported" / name) for name in names}


def test_a_tsv_file_gives_the_same_features_and_the_boxes(world):
    """The features stage imports its own features from a file in bottom-up-attention's TSV format."""
    original = FeatureStore(world / "original" / "features/main")
    vectors, regions, _ = original.read(np.arange(8))
    boxes = np.array([[0, 0, 20, 40], [20, 0, 40, 40], [0, 0, 40, 20], [0, 20, 40, 40]], np.float32)
    with open(world / "exported" / "all.tsv", "wb") as file:
        for row, id_ in enumerate(PreparedData.load(world / "original" / "prepared").ids.to_pylist()):
            fields = [base64.b64encode(np.ascontiguousarray(array).tobytes()) for array in (boxes, regions[row])]
            file.write(b"\t".join([id_.encode(), b"40", b"40", b"4", *fields]) + b"\r\n")
    params = yaml.safe_load((world / "params.yaml").read_text())
    params["features"]["main"]["imported"] |= {"format": "tsv", "regions": "exported/all.tsv"}
    (world / "params.yaml").write_text(yaml.safe_dump(params))
    run_prepare_and_features()
    store = FeatureStore(world / "data" / "features/main")
    verify(store)
    np.testing.assert_array_equal(store.read(np.arange(8))[0], vectors)
    np.testing.assert_array_equal(store.read(np.arange(8))[1], regions)
    np.testing.assert_array_equal(store.boxes(np.arange(8)), np.broadcast_to(boxes / 40, (8, 4, 4)))


def test_foreign_or_missing_document_frequencies_are_refused(world, capsys):
    path = world / "exported" / "coco-train-idxs.p"
    content = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(content | {"ref_len": 8}, 2))
    assert run_stage("prepare") == 2
    printed = capsys.readouterr().err.strip().splitlines()[-1]
    assert printed.startswith("exported/coco-train-idxs.p: was counted over 8 images, but the training split has 4")
    path.unlink()
    assert run_stage("prepare") == 2
    assert "the file of document frequencies is missing" in capsys.readouterr().err
