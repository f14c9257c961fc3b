import json
from pathlib import Path

import pytest
from PIL import Image

from pipeline.errors import UserError
from pipeline.readers import read_coco, read_corpus
from pipeline.readers.checks import check_corpus


def make_coco(*rows: tuple[int, str, list[str]]) -> dict:
    annotations = [
        {"id": 10 * i + k, "image_id": i, "caption": caption} for i, _, texts in rows for k, caption in enumerate(texts)
    ]
    return {"images": [{"id": i, "file_name": file} for i, file, _ in rows], "annotations": annotations[::-1]}


def write_coco(folder: Path, images: Path) -> dict[str, Path]:
    files = {}
    for i, split in enumerate(("train", "val", "test")):
        files[split] = folder / f"captions_{split}2099.json"
        rows = [(i, f"{i}.jpg", ["A Ball.", "two balls"])]
        files[split].write_text(json.dumps(make_coco(*rows)))
        (images / f"{split}2099").mkdir()
        (images / f"{i}.jpg").rename(images / f"{split}2099" / f"{i}.jpg")
    return files


def test_coco_format_is_read_from_one_file_per_split(karpathy, tmp_path):
    _, images = karpathy(change=lambda d: [i.update(filepath="") for i in d["images"]])
    (images / "part" / "1.jpg").rename(images / "1.jpg")
    files = write_coco(tmp_path, images)
    corpus = check_corpus(read_coco(files, images), images)
    assert [(i.id, i.file, i.split) for i in corpus.images] == [
        ("0", "train2099/0.jpg", "train"),
        ("1", "val2099/1.jpg", "val"),
        ("2", "test2099/2.jpg", "test"),
    ]
    assert [c.words for c in corpus.images[0].captions] == [("two", "balls"), ("a", "ball")]
    assert check_corpus(read_coco(files, None), None).counts() == corpus.counts()  # no image file is opened
    by_form = read_corpus("balls", "coco", tmp_path, {k: f.name for k, f in files.items()}, images)
    assert by_form.images == corpus.images
    assert by_form.name == "balls"


def test_coco_format_takes_splits_from_a_file_and_omits_images_without_a_split(karpathy, tmp_path):
    annotations, images = karpathy()
    rows = [(i, f"part/{i}.jpg" if i % 2 else f"{i}.jpg", ["a ball"]) for i in range(8)]
    (tmp_path / "captions.json").write_text(json.dumps(make_coco(*rows)))
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": [0, "3.jpg"], "val": ["2.jpg"], "test": ["7"]}))
    corpus = check_corpus(read_coco([tmp_path / "captions.json"], images, splits), images)
    assert [(i.id, i.split) for i in corpus.images] == [("0", "train"), ("2", "val"), ("3", "train"), ("7", "test")]
    data = json.loads(annotations.read_text())
    for row in data["images"]:
        row["filename"] = f"part/{row['filename']}" if row["imgid"] % 2 else row["filename"]
    annotations.write_text(json.dumps(data))
    assert check_corpus(read_coco([tmp_path / "captions.json"], images, annotations), images).counts() == {
        "train": 4,
        "val": 2,
        "test": 2,
    }
    with pytest.raises(UserError, match="names no splits"):
        check_corpus(read_coco([tmp_path / "captions.json"], images), images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["annotations"][0].update(image_id=9),
            r"annotations\[0\].*caption is of image 9, which is not among",
        ),
        (lambda d: d["images"].append({"id": 9, "file_name": "9.jpg"}), r"images\[3\].*image 9.jpg has no captions"),
        (lambda d: d["images"][1].update(id=0), r"images\[1\].*image id 0 occurs a second time"),
        (lambda d: d["images"][1].update(id="0"), r'images\[1\].*image id "0" occurs a second time'),
        (
            lambda d: d["images"][1].update(id=True),
            r"images\[1\].*`id` is true, and a whole number or a text is expected",
        ),
        (lambda d: d["images"][1].update(file_name=1), r"images\[1\].*`file_name` is 1, and a text is expected"),
        (lambda d: d["annotations"][0].update(image_id="2"), r'annotations\[0\].*the caption is of image "2", which'),
        (lambda d: d["annotations"][1].update(id=20), r"annotations\[1\].*caption id 20 occurs a second time"),
        (lambda d: d["annotations"][1].update(caption=" "), r"annotations\[1\].*the caption is empty"),
        (lambda d: d["annotations"][1].pop("caption"), r"annotations\[1\].*`caption` is missing"),
        (lambda d: d.pop("annotations"), "needs a list `annotations`"),
    ],
)
def test_a_mistake_in_a_coco_file_is_reported_with_its_place(tmp_path, change, message):
    data = make_coco(*[(i, f"{i}.jpg", ["a ball"]) for i in range(3)])
    change(data)
    (tmp_path / "captions.json").write_text(json.dumps(data))
    (tmp_path / "splits.json").write_text(json.dumps({"train": [0, 9], "val": [1], "test": [2]}))
    with pytest.raises(UserError, match=message):
        check_corpus(read_coco([tmp_path / "captions.json"], tmp_path, tmp_path / "splits.json"), tmp_path)


@pytest.fixture
def merged_files(tmp_path) -> tuple[list[Path], Path]:
    """Write COCO's two files of 2014 with two photos each, in the folders of COCO's archives."""
    files = []
    for part, ids in (("train2014", (9, 25)), ("val2014", (42, 73))):
        names = [f"COCO_{part}_{i:012}.jpg" for i in ids]
        files.append(tmp_path / f"captions_{part}.json")
        files[-1].write_text(
            json.dumps(make_coco(*[(i, name, ["a ball"]) for i, name in zip(ids, names, strict=True)]))
        )
        (tmp_path / "images" / part).mkdir(parents=True)
        for name in names:
            Image.new("RGB", (8, 8)).save(tmp_path / "images" / part / name)
    return files, tmp_path / "images"


SPLIT_ROWS = [("train2014", 9, "test"), ("train2014", 25, "train"), ("val2014", 42, "restval"), ("val2014", 73, "val")]
COCOTALK = {"images": [{"split": s, "file_path": f"{p}/COCO_{p}_{i:012}.jpg", "id": i} for p, i, s in SPLIT_ROWS]}


def test_two_coco_files_are_merged_by_one_file_of_splits(merged_files, tmp_path):
    files, images = merged_files
    (tmp_path / "cocotalk.json").write_text(json.dumps(COCOTALK | {"ix_to_word": {"1": "ball"}}))
    corpus = check_corpus(read_coco(files, images, tmp_path / "cocotalk.json"), images)
    assert [(i.id, i.file, i.split) for i in corpus.images] == [
        ("9", "train2014/COCO_train2014_000000000009.jpg", "test"),
        ("25", "train2014/COCO_train2014_000000000025.jpg", "train"),
        ("42", "val2014/COCO_val2014_000000000042.jpg", "train"),
        ("73", "val2014/COCO_val2014_000000000073.jpg", "val"),
    ]
    assert corpus.restval == 1
    assert [source.name for source in corpus.sources] == [
        "captions_train2014.json",
        "captions_val2014.json",
        "cocotalk.json",
    ]
    names = [file.name for file in files]
    assert read_corpus("coco", "coco", tmp_path, names, images, "cocotalk.json").images == corpus.images


def test_an_image_is_in_the_folder_that_its_name_states(merged_files, tmp_path):
    # the merged file is called captions_val2014.json and has images of train2014, too
    files, images = merged_files
    data = [json.loads(file.read_text()) for file in files]
    whole = {key: data[0][key] + data[1][key] for key in ("images", "annotations")}
    files[1].write_text(json.dumps(whole))
    (tmp_path / "splits.json").write_text(json.dumps({"train": [9, 73], "val": [25], "test": [42]}))
    corpus = check_corpus(read_coco([files[1]], images, tmp_path / "splits.json"), images)
    assert [image.file.split("/")[0] for image in corpus.images] == ["train2014", "train2014", "val2014", "val2014"]


def test_a_file_of_splits_may_name_an_image_by_its_id_and_by_its_file(merged_files, tmp_path):
    files, images = merged_files
    splits = {"train": [9, "COCO_train2014_000000000009.jpg"], "val": [25], "test": [42, 73]}
    (tmp_path / "splits.json").write_text(json.dumps(splits))
    corpus = check_corpus(read_coco(files, images, tmp_path / "splits.json"), images)
    assert {image.id: image.split for image in corpus.images} == {"9": "train", "25": "val", "42": "test", "73": "test"}


def test_an_image_in_two_splits_by_its_id_and_by_its_file_is_reported(merged_files, tmp_path):
    files, images = merged_files
    splits = {"train": [9], "val": ["COCO_train2014_000000000009.jpg", 25], "test": [42, 73]}
    (tmp_path / "splits.json").write_text(json.dumps(splits))
    with pytest.raises(UserError, match=r"splits.json names this image twice, for the splits train and val"):
        read_coco(files, images, tmp_path / "splits.json")


def test_an_image_of_the_splits_that_no_file_has_is_reported(merged_files, tmp_path):
    files, images = merged_files
    (tmp_path / "cocotalk.json").write_text(json.dumps(COCOTALK))
    with pytest.raises(
        UserError, match=r"cocotalk.json: 2 of its images, such as COCO_train2014_000000000009.jpg, are"
    ):
        check_corpus(read_coco([files[1]], images, tmp_path / "cocotalk.json"), images)


def test_an_image_in_two_files_is_reported_with_both_places(merged_files, tmp_path):
    files, images = merged_files
    (tmp_path / "splits.json").write_text(json.dumps({"train": [9], "val": [25], "test": [42]}))
    message = (
        r"captions_train2014.json, images\[0\] \(line 1\): image id 9 occurs a second .*first at .*other.json, images"
    )
    (tmp_path / "other.json").write_text(files[0].read_text())
    with pytest.raises(UserError, match=message):
        check_corpus(read_coco([tmp_path / "other.json", files[0]], images, tmp_path / "splits.json"), images)


@pytest.mark.parametrize("annotations", [[], {}])
def test_no_annotation_file_is_reported(annotations):
    with pytest.raises(UserError, match="no file is given"):
        read_coco(annotations, None)


def test_real_coco_captions_agree_with_karpathys_file(real_data, tmp_path):
    mini = real_data / "coco_mini"
    rows = json.loads((mini / "dataset_coco_mini.json").read_text())["images"]
    val = sorted(row["cocoid"] for row in rows if row["split"] == "val")  # the other images are not in val2017
    (tmp_path / "splits.json").write_text(json.dumps({"train": val[:100], "val": val[100:130], "test": val[130:]}))
    corpus = check_corpus(
        read_coco([mini / "captions_val2017.json"], mini / "images", tmp_path / "splits.json"), mini / "images"
    )
    assert corpus.counts() == {"train": 100, "val": 30, "test": len(val) - 130}
    texts_by_id = {str(row["cocoid"]): {s["raw"].strip() for s in row["sentences"]} for row in rows}
    for image in corpus.images:
        assert {" ".join(raw.split()) for raw in texts_by_id[image.id]} <= {caption.text for caption in image.captions}


def test_real_coco_photos_are_read_in_karpathys_format(real_data, tmp_path):
    mini = real_data / "coco_mini"
    data = json.loads((mini / "dataset_coco_mini.json").read_text())
    for row in [row for row in data["images"] if row["split"] == "val"][:30]:
        row["split"] = "test"  # the file has no test split
    (tmp_path / "dataset.json").write_text(json.dumps(data))
    corpus = read_corpus("coco_mini", "karpathy", tmp_path, "dataset.json", mini / "images")
    assert len(corpus.images) == 248
    assert corpus.counts()["test"] == 30
