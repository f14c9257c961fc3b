"""cocotalk.json and cocotalk_label.h5 as prepro_labels.py of self-critical.pytorch writes them."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.errors import UserError
from pipeline.readers import read_cocotalk, read_corpus, read_karpathy
from pipeline.runtime.files import compute_sha256

WORDS = ["ball", "grass", "a", "red", "UNK"]  # not in the order of their counts
CAPTIONS = [[[3, 4, 1]], [[3, 1], [1, 5, 2, 3]], [[4, 1, 1, 1]], [[2]]]


def write_files(folder: Path, change: Callable[[dict, dict], None] = lambda data, arrays: None) -> tuple[Path, Path]:
    """Write both files of four images, with captions of at most four words, after `change`."""
    labels = [caption for image in CAPTIONS for caption in image]
    counts = np.array([len(image) for image in CAPTIONS])
    arrays = {
        "labels": np.array([caption + [0] * (4 - len(caption)) for caption in labels], np.uint32),
        "label_start_ix": (np.cumsum(counts) - counts + 1).astype(np.uint32),
        "label_end_ix": np.cumsum(counts).astype(np.uint32),
        "label_length": np.array([len(caption) for caption in labels], np.uint32),
    }
    splits = ["restval", "train", "val", "test"]
    images = [
        {"split": split, "file_path": f"val2014/COCO_{i}.jpg", "id": 391895 + i} for i, split in enumerate(splits)
    ]
    data = {"ix_to_word": {str(i + 1): word for i, word in enumerate(WORDS)}, "images": images}
    change(data, arrays)
    (folder / "cocotalk.json").write_text(json.dumps(data))
    with h5py.File(folder / "cocotalk_label.h5", "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values)
    return folder / "cocotalk.json", folder / "cocotalk_label.h5"


def test_images_splits_and_captions_are_those_of_the_files(tmp_path):
    files = write_files(tmp_path)
    corpus = read_cocotalk(*files)
    assert [(image.id, image.file, image.split) for image in corpus.images] == [
        ("391895", "val2014/COCO_0.jpg", "train"),
        ("391896", "val2014/COCO_1.jpg", "train"),
        ("391897", "val2014/COCO_2.jpg", "val"),
        ("391898", "val2014/COCO_3.jpg", "test"),
    ]
    assert [caption.words for caption in corpus.images[1].captions] == [("a", "ball"), ("ball", "UNK", "grass", "a")]
    assert corpus.images[1].captions[1].text == "ball UNK grass a"
    assert (corpus.sources, corpus.max_caption_words) == (files, 4)


def test_ids_and_words_are_unchanged(tmp_path):
    corpus = read_cocotalk(*write_files(tmp_path))
    manifest = write_prepared(corpus, tmp_path / "out", None, 4)
    prepared = PreparedData.load(tmp_path / "out")
    assert prepared.vocabulary.words == tuple(WORDS)
    assert prepared.tokens.tolist() == [[3, 4, 1, 0], [3, 1, 0, 0], [1, 5, 2, 3], [4, 1, 1, 1], [2, 0, 0, 0]]
    assert prepared.first.tolist() == [0, 1, 3, 4, 5]
    assert manifest["inputs"] == {file.name: compute_sha256(file) for file in corpus.sources}


def test_truncated_captions_are_refused_for_a_larger_max_words(tmp_path):
    corpus = read_cocotalk(*write_files(tmp_path))
    with pytest.raises(UserError, match="were cut after 4 words, fewer than max_words 5"):
        write_prepared(corpus, tmp_path / "out", None, 5)
    write_prepared(corpus, tmp_path / "out", None, 3)
    assert PreparedData.load(tmp_path / "out").captions(2) == [[4, 1, 1]]


def test_prepared_data_in_this_format_are_read_unchanged(karpathy, tmp_path):
    """The project's prepared data, written in the format of prepro_labels.py, are read to the same tables."""
    own = read_karpathy(karpathy()[0])
    write_prepared(own, tmp_path / "own", 1, 4)
    prepared = PreparedData.load(tmp_path / "own")

    def copy_prepared(data, arrays):
        data["ix_to_word"] = {str(i): word for word, i in prepared.vocabulary.ids.items()}
        data["images"] = [
            {"id": int(i.id), "file_path": i.file, "split": "restval" if i.id == "1" else i.split} for i in own.images
        ]
        arrays |= {
            "labels": prepared.tokens.astype(np.uint32),
            "label_start_ix": (prepared.first[:-1] + 1).astype(np.uint32),
            "label_end_ix": prepared.first[1:].astype(np.uint32),
            "label_length": (prepared.tokens > 0).sum(1).astype(np.uint32),
        }

    write_files(tmp_path, copy_prepared)
    files = {"json": "cocotalk.json", "labels": "cocotalk_label.h5"}
    corpus = read_corpus("balls", "cocotalk", tmp_path, files, tmp_path / "images")
    write_prepared(corpus, tmp_path / "imported", None, 4)
    imported = PreparedData.load(tmp_path / "imported")
    assert imported.vocabulary == prepared.vocabulary
    assert "UNK" in imported.words(3)[3]  # min_count 1 makes some words unknown
    for name in ("tokens", "first", "splits"):
        np.testing.assert_array_equal(getattr(imported, name), getattr(prepared, name))
    assert imported.ids.equals(prepared.ids)
    assert imported.files.equals(prepared.files)


def test_whole_captions_may_be_read_from_the_original_annotations(tmp_path):
    write_files(tmp_path)
    captions = [["A red BALL."], ["a ball", "ball zebra grass, a red ball"], ["red ball ball ball ball"], ["grass"]]
    splits = ["test", "train", "val", "train"]  # the reader ignores these and takes the splits of cocotalk.json

    def annotate(change=lambda images: None):
        images = [
            {"filename": "x", "filepath": str(i), "cocoid": 391895 + i, "imgid": i, "split": splits[i]}
            for i in range(4)
        ]
        for image, texts in zip(images, captions, strict=True):
            image["sentences"] = [{"raw": text} for text in texts]
        change(images)
        (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": images[::-1]}))

    files = {"json": "cocotalk.json", "labels": "cocotalk_label.h5", "captions": "dataset_coco.json"}
    annotate()
    corpus = read_corpus("coco", "cocotalk", tmp_path, files, None)
    write_prepared(corpus, tmp_path / "out", None, 4)
    prepared = PreparedData.load(tmp_path / "out")
    assert prepared.texts(1) == ["a ball", "ball zebra grass, a red ball"]
    assert prepared.words(1)[1] == ["ball", "zebra", "grass", "a", "red", "ball"]
    assert prepared.captions(1) == [[3, 1], [1, 5, 2, 3]]
    assert prepared.rows("train").tolist() == [0, 1]
    assert "dataset_coco.json" in prepared.manifest["inputs"]
    write_prepared(corpus, tmp_path / "longer", None, 6)
    assert PreparedData.load(tmp_path / "longer").captions(1)[1] == [1, 5, 2, 3, 4, 1]

    annotate(lambda images: images[1]["sentences"].reverse())
    with pytest.raises(UserError, match=r"dataset_coco.json: the captions of image 391896 are not those of"):
        read_corpus("coco", "cocotalk", tmp_path, files, None)
    annotate(lambda images: images[0].update(cocoid=5))
    with pytest.raises(UserError, match=r"dataset_coco.json: image 391895 of .*cocotalk.json is missing"):
        read_corpus("coco", "cocotalk", tmp_path, files, None)


def test_images_are_opened_only_if_their_folder_is_given(tmp_path):
    write_files(tmp_path)
    files = {"json": "cocotalk.json", "labels": "cocotalk_label.h5"}
    assert read_corpus("coco", "cocotalk", tmp_path, files, None).name == "coco"
    (tmp_path / "images").mkdir()
    with pytest.raises(UserError, match=r"COCO_0.jpg: the image is missing"):
        read_corpus("coco", "cocotalk", tmp_path, files, tmp_path / "images")
    write_files(tmp_path, lambda data, arrays: data["images"][2].pop("file_path"))
    assert read_corpus("coco", "cocotalk", tmp_path, files, None).images[2].file == ""
    with pytest.raises(UserError, match=r"image 391897 has no file name; add it, or .* set prepare.images: null"):
        read_corpus("coco", "cocotalk", tmp_path, files, tmp_path / "images")


def set_data(key, value):
    return lambda data, arrays: data.update({key: value})


def set_image(**change):
    return lambda data, arrays: data["images"][2].update(change)


def set_array_value(name, index, value):
    return lambda data, arrays: arrays[name].__setitem__(index, value)


def set_real_value(name, index, value):
    """Return a change that stores the array `name` as real numbers, with `value` at `index`."""

    def change(data, arrays):
        arrays[name] = arrays[name].astype(float)
        arrays[name][index] = value

    return change


def remove_images(data, arrays):
    data["images"] = []
    arrays.update({name: values[:0] for name, values in arrays.items()})


MISTAKES = [
    (set_data("ix_to_word", None), r"needs `ix_to_word`"),
    (set_data("ix_to_word", {"1": "a", "2": "UNK", "4": "b"}), r'ix_to_word\["3"\] must be a word, not null'),
    (set_data("ix_to_word", {"1": "a b", "2": "UNK"}), r'ix_to_word\["1"\] must be a word, not "a b"'),
    (set_data("ix_to_word", {"1": "a", "2": "a"}), r'ix_to_word\["2"\] is "a", which is word 1 already'),
    (set_data("ix_to_word", {"1": "UNK", "2": "a"}), r'the last word, ix_to_word\["2"\], is "a" and not UNK'),
    (set_data("bpe", "#version: 0.2"), r"its tokens are subwords"),
    (set_data("images", {}), r"needs a list `images`"),
    (set_data("images", []), r"do not belong to the 0 images"),
    (remove_images, r"cocotalk.json: `images` is empty"),
    (set_real_value("labels", (0, 0), 2.9), r"labels holds 2.9; expected signed 64-bit integers"),
    (set_real_value("label_start_ix", 0, 1.5), r"label_start_ix holds 1.5; expected"),
    (set_real_value("label_length", 3, np.nan), r"label_length holds nan; expected"),
    (set_image(split="dev"), r'images\[2\] \(line 1\): the split "dev" is unknown'),
    (set_image(id=391896), r'image id "391896" occurs a second time, first at images\[1\]'),
    (set_image(id=None), r"images\[2\] \(line 1\): `id` is missing"),
    (lambda data, arrays: data["images"].pop(), r"do not belong to the 3 images of"),
    (lambda data, arrays: arrays.pop("labels"), r"not an HDF5 file with labels, label_start_ix and label_end_ix"),
    (set_array_value("label_start_ix", 0, 0), r"label_start_ix\[0\] is 0, not 1"),
    (set_array_value("label_start_ix", 2, 3), r"label_start_ix\[2\] is 3, not 4"),  # an overlap with the previous image
    (set_array_value("label_end_ix", 3, 4), r"image 3 has no captions \(label_start_ix 5, label_end_ix 4\)"),
    (set_array_value("label_end_ix", 3, 6), r"labels has 5 captions, but label_end_ix ends at 6"),
    (set_array_value("labels", (1, 0), 6), r"labels\[1\] holds an id outside 0 … 5"),
    (set_array_value("labels", (1, 3), 2), r"labels\[1\] goes on after its end"),
    (set_array_value("labels", (4, 0), 0), r"labels\[4\] is empty"),
    (set_array_value("label_length", 1, 3), r"labels\[1\] has another length than label_length states"),
    (lambda data, arrays: arrays.update(labels=arrays["labels"].ravel()), r"labels \(20,\)"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_reported_in_one_line_with_file_and_place(tmp_path, change, message):
    with pytest.raises(UserError, match=message) as caught:
        read_cocotalk(*write_files(tmp_path, change))
    assert str(caught.value).startswith(str(tmp_path / "cocotalk"))
    assert "\n" not in caught.value.args[0]


def test_whole_numbers_may_be_stored_as_real_ones(tmp_path):
    corpus = read_cocotalk(*write_files(tmp_path))
    assert read_cocotalk(*write_files(tmp_path, set_real_value("labels", (0, 0), 3))).images == corpus.images


def test_damaged_groups_of_labels_are_reported(tmp_path):
    """HDF5 finds no name in a group whose heap of names is damaged; h5py then raises a RuntimeError."""
    annotations, labels = write_files(tmp_path)
    content = labels.read_bytes()
    assert content.count(b"HEAP") == 1
    labels.write_bytes(content.replace(b"HEAP", b"heap"))
    with pytest.raises(UserError, match=r"cocotalk_label.h5: not an HDF5 file with labels, .*bad local heap signature"):
        read_cocotalk(annotations, labels)


def test_a_missing_or_invalid_file_of_labels_is_reported(tmp_path):
    annotations, labels = write_files(tmp_path)
    labels.write_bytes(b"not HDF5")
    with pytest.raises(UserError, match=r"cocotalk_label.h5: not an HDF5 file"):
        read_cocotalk(annotations, labels)
    labels.unlink()
    with pytest.raises(UserError, match=r"cocotalk_label.h5: the file of labels is missing"):
        read_cocotalk(annotations, labels)
