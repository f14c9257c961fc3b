import json

import pytest

from pipeline.errors import UserError
from pipeline.readers import read_coco, read_karpathy
from pipeline.readers.checks import check_corpus

COUNTS = {"train": 4, "val": 2, "test": 2}


def test_expected_counts_are_checked(karpathy):
    annotations, images = karpathy()
    assert check_corpus(read_karpathy(annotations), images, COUNTS).counts() == COUNTS
    assert check_corpus(read_karpathy(annotations), images, {"val": 2}).counts() == COUNTS
    with pytest.raises(
        UserError, match="val has 2 images and 3 are expected, test has 2 images and 1 are expected; take"
    ):
        check_corpus(read_karpathy(annotations), images, {"train": 4, "val": 3, "test": 1})
    with pytest.raises(UserError, match="train has 4 images and 5 are expected; take the right file") as error:
        check_corpus(read_karpathy(annotations), images, {"train": 5})
    assert "restval" not in str(error.value)  # the file has images of restval


def test_a_training_split_without_restval_is_reported(karpathy, tmp_path):
    """COCO's file without restval has 82,783 training images instead of 113,287."""

    def drop(data):
        data["images"] = [image for image in data["images"] if image["split"] != "restval"]

    annotations, images = karpathy(change=drop)
    message = r"dataset_balls.json: train has 2 images and 4 are .* no image is in the split restval.*2 are missing"
    with pytest.raises(UserError, match=message):
        check_corpus(read_karpathy(annotations), images, COUNTS)
    rows = json.loads(annotations.read_text())["images"]
    coco = {
        "images": [{"id": row["imgid"], "file_name": row["filename"]} for row in rows],
        "annotations": [{"id": row["imgid"], "image_id": row["imgid"], "caption": "a ball"} for row in rows],
    }
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    with pytest.raises(
        UserError, match=r"dataset_balls.json: train has 2 images and 4 are .* no image is in the split restval"
    ):
        check_corpus(read_coco([tmp_path / "captions.json"], images, annotations), images, COUNTS)


def test_counts_are_reported_before_an_image_is_opened(karpathy):
    annotations, images = karpathy()
    (images / "part" / "5.jpg").unlink()
    with pytest.raises(UserError, match="train has 4 images and 5 are expected"):
        check_corpus(read_karpathy(annotations), images, {"train": 5})


def test_an_image_known_to_be_corrupt_is_named_and_skipped(karpathy, capsys):
    annotations, images = karpathy()
    (images / "part" / "5.jpg").write_bytes((images / "part" / "5.jpg").read_bytes()[:-200])
    corpus = check_corpus(read_karpathy(annotations), images, COUNTS, ["part/5.jpg", "part/1.jpg"])
    assert [image.file for image in corpus.skipped] == ["part/5.jpg"]  # part/1.jpg can be decoded
    assert corpus.counts() == {"train": 3, "val": 2, "test": 2}  # expected counts include skipped images
    printed = capsys.readouterr().err
    assert "warning: skipped" in printed
    assert "part/5.jpg: the image cannot be decoded" in printed
    assert "part/1.jpg" not in printed


def test_a_split_whose_images_are_all_skipped_is_reported_as_such(karpathy):
    annotations, images = karpathy()
    corpus = read_karpathy(annotations)
    for image in corpus.images:
        if image.split == "val":
            (images / image.file).unlink()
    with pytest.raises(
        UserError, match=r"all 2 images of the split val are skipped; each of train, val, test needs one that"
    ):
        check_corpus(corpus, images, missing=0.5)


def test_a_corrupt_image_that_is_not_listed_is_an_error(karpathy):
    annotations, images = karpathy()
    for file in ("part/5.jpg", "part/7.jpg"):
        (images / file).write_bytes(b"")
    with pytest.raises(UserError, match=r"part/7.jpg: the image file is empty"):
        check_corpus(read_karpathy(annotations), images, {}, ["part/5.jpg"])
