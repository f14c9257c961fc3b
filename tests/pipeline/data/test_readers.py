import json
import os
from collections import Counter
from pathlib import Path

import pytest

from pipeline.data.corpus import tokenise
from pipeline.data.readers import read_coco, read_corpus, read_karpathy
from pipeline.errors import UserError

REAL = Path(os.environ.get("SAYWHICH_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_real_data = pytest.mark.skipif(
    not (REAL / "flickr8k").is_dir(), reason=f"no real data in {REAL}; set SAYWHICH_TEST_DATA to a folder that has them"
)


def coco_form(*rows: tuple[int, str, list[str]]) -> dict:
    annotations = [
        {"id": 10 * i + k, "image_id": i, "caption": caption} for i, _, some in rows for k, caption in enumerate(some)
    ]
    return {"images": [{"id": i, "file_name": file} for i, file, _ in rows], "annotations": annotations[::-1]}


def test_karpathy_form_is_read(karpathy):
    corpus = read_karpathy(*karpathy())
    assert corpus.name == "balls"
    assert corpus.counts() == {"train": 4, "val": 2, "test": 2}  # restval joins train
    assert [image.file for image in corpus.images[:3]] == ["0.jpg", "part/1.jpg", "2.jpg"]
    assert [len(image.captions) for image in corpus.images] == [1, 2, 3, 4, 5, 1, 2, 3]
    assert corpus.images[1].captions[1].words == ("the", "red", "ball")
    assert corpus.images[1].captions[1].text == "the red ball."


def test_without_a_folder_of_images_none_is_looked_for(karpathy, tmp_path):
    annotations, images = karpathy()
    with_images = read_karpathy(annotations, images)
    assert read_karpathy(annotations, None) == with_images
    rows = [(i, f"{i}.jpg", ["a ball"]) for i in range(3)]
    files = {}
    for split, row in zip(("train", "val", "test"), rows, strict=True):
        files[split] = tmp_path / f"captions_{split}2017.json"
        files[split].write_text(json.dumps(coco_form(row)))
    assert [image.file for image in read_coco(files, None).images] == ["0.jpg", "1.jpg", "2.jpg"]


def test_sentences_without_tokens_are_tokenised(karpathy):
    def change(data):
        data["images"][0]["sentences"][0] = {"raw": "  A T-shirt, it's BIG!\nTwo 'n' 3. "}

    caption = read_karpathy(*karpathy(change=change)).images[0].captions[0]
    assert caption.words == ("a", "t", "shirt", "it's", "big", "two", "n", "3")
    assert caption.text == "A T-shirt, it's BIG! Two 'n' 3."


def image(index):
    return lambda data: data["images"][index]


MISTAKES = {
    "no captions": (
        lambda d: d["images"][1].update(sentences=[]),
        r"images\[1\] \(line \d+\): image part/1.jpg has no c",
    ),
    "no sentences": (lambda d: d["images"][1].pop("sentences"), r"images\[1\] \(line \d+\): `sentences` is missing"),
    "another's": (
        lambda d: d["images"][2]["sentences"][1].update(imgid=77),
        r"images\[2\].sentences\[1\] \(line \d+\): the caption is of image 77",
    ),
    "empty": (lambda d: d["images"][2]["sentences"][0].update(raw=" ", tokens=[]), r"sentences\[0\].*caption is empty"),
    "no words": (lambda d: d["images"][2]["sentences"].append({"raw": "?!"}), r"sentences\[3\].*caption is empty"),
    "image id twice": (lambda d: d["images"][3].update(imgid=1), r"images\[3\].*image id 1 is there.*images\[1\]"),
    "image twice": (
        lambda d: d["images"][3].update(filename="1.jpg", imgid=99, sentences=[{"raw": "a"}]),
        r"images\[3\].*image file \"part/1.jpg\" is there a second time, first at images\[1\]",
    ),
    "sentence id twice": (
        lambda d: d["images"][3]["sentences"][0].update(sentid=5),
        r"images\[3\].sentences\[0\].*sentence id 5 .*first at images\[1\].sentences\[0\]",
    ),
    "unknown split": (lambda d: d["images"][1].update(split="training"), r"images\[1\].*split \"training\" is unknown"),
    "empty split": (
        lambda d: [i.update(split="train") for i in d["images"] if i["split"] == "val"],
        "no image is in the split val",
    ),
    "no list": (lambda d: d.update(images={}), "line 1: the object needs a list `images`"),
    "not an object": (lambda d: d["images"].insert(1, "x"), r"images\[1\] \(line \d+\): an object with"),
    "number for name": (lambda d: d["images"][0].update(filename=7), r"images\[0\] \(line 4\): `filename` is 7"),
    "words as text": (
        lambda d: d["images"][0]["sentences"][0].update(tokens="a b"),
        "`tokens` is to be a list of words",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_karpathy_file_is_told_with_its_place(karpathy, name):
    change, message = MISTAKES[name]
    annotations, images = karpathy(change=change)
    with pytest.raises(UserError, match=message) as told:
        read_karpathy(annotations, images)
    assert str(annotations) in str(told.value)
    assert "\n" not in str(told.value)


def test_the_line_told_is_where_the_image_stands(karpathy):
    annotations, images = karpathy(change=lambda d: d["images"][3].update(split="x"))
    lines = annotations.read_text().splitlines()
    with pytest.raises(UserError) as told:
        read_karpathy(annotations, images)
    line = int(str(told.value).split("(line ")[1].split(")")[0])
    assert lines[line - 1].strip() == "{"
    assert '"filename": "3.jpg"' in lines[line]


def test_text_that_is_no_json_is_told_with_line_and_column(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{"images": [\n{"filename": }]}')
    with pytest.raises(UserError, match=r"broken.json, line 2, column 14: not JSON"):
        read_karpathy(path, tmp_path)
    with pytest.raises(UserError, match="the annotation file is missing"):
        read_karpathy(tmp_path / "none.json", tmp_path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "part/5.jpg: the image is missing"),
        (lambda path: path.write_bytes(b""), "part/5.jpg: the image file is empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:-200]), "part/5.jpg: the image cannot be decoded.*truncated"),
        (lambda path: path.write_text("<html>404</html>"), "part/5.jpg: the image cannot be decoded.*cannot identify"),
    ],
)
def test_an_image_that_cannot_be_read_is_named(karpathy, harm, message):
    annotations, images = karpathy()
    harm(images / "part" / "5.jpg")
    with pytest.raises(UserError, match=message):
        read_karpathy(annotations, images)


def test_a_missing_folder_of_images_is_told(karpathy, tmp_path):
    annotations, _ = karpathy()
    with pytest.raises(UserError, match="elsewhere: the folder of images does not exist"):
        read_karpathy(annotations, tmp_path / "elsewhere")


def write_coco(folder: Path, images: Path) -> dict[str, Path]:
    files = {}
    for i, split in enumerate(("train", "val", "test")):
        files[split] = folder / f"captions_{split}2099.json"
        rows = [(i, f"{i}.jpg", ["A Ball.", "two balls"])]
        files[split].write_text(json.dumps(coco_form(*rows)))
        (images / f"{split}2099").mkdir()
        (images / f"{i}.jpg").rename(images / f"{split}2099" / f"{i}.jpg")
    return files


def test_coco_form_is_read_a_file_a_split(karpathy, tmp_path):
    _, images = karpathy(change=lambda d: [i.update(filepath="") for i in d["images"]])
    (images / "part" / "1.jpg").rename(images / "1.jpg")
    files = write_coco(tmp_path, images)
    corpus = read_coco(files, images)
    assert [(i.id, i.file, i.split) for i in corpus.images] == [
        ("0", "train2099/0.jpg", "train"),
        ("1", "val2099/1.jpg", "val"),
        ("2", "test2099/2.jpg", "test"),
    ]
    assert [c.words for c in corpus.images[0].captions] == [("two", "balls"), ("a", "ball")]
    by_stage = read_corpus("balls", "coco", tmp_path, {k: f.name for k, f in files.items()}, images)
    assert by_stage.images == corpus.images
    assert by_stage.name == "balls"


def test_coco_form_takes_its_splits_from_a_file_and_leaves_out_what_that_does_not_name(karpathy, tmp_path):
    annotations, images = karpathy()
    rows = [(i, f"part/{i}.jpg" if i % 2 else f"{i}.jpg", ["a ball"]) for i in range(8)]
    (tmp_path / "captions.json").write_text(json.dumps(coco_form(*rows)))
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": [0, 3], "val": ["2.jpg"], "test": ["7"]}))
    corpus = read_coco(tmp_path / "captions.json", images, splits)
    assert [(i.id, i.split) for i in corpus.images] == [("0", "train"), ("2", "val"), ("3", "train"), ("7", "test")]
    data = json.loads(annotations.read_text())
    for row in data["images"]:
        row["filename"] = f"part/{row['filename']}" if row["imgid"] % 2 else row["filename"]
    annotations.write_text(json.dumps(data))
    assert read_coco(tmp_path / "captions.json", images, annotations).counts() == {"train": 4, "val": 2, "test": 2}
    with pytest.raises(UserError, match="says nothing of splits"):
        read_coco(tmp_path / "captions.json", images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["annotations"][0].update(image_id=9),
            r"annotations\[0\].*caption is of image 9, which is not among",
        ),
        (lambda d: d["images"].append({"id": 9, "file_name": "9.jpg"}), r"images\[3\].*image 9.jpg has no captions"),
        (lambda d: d["images"][1].update(id=0), r"images\[1\].*image id 0 is there a second time"),
        (lambda d: d["annotations"][1].update(id=20), r"annotations\[1\].*caption id 20 is there a second time"),
        (lambda d: d["annotations"][1].update(caption=" "), r"annotations\[1\].*the caption is empty"),
        (lambda d: d["annotations"][1].pop("caption"), r"annotations\[1\].*`caption` is missing"),
        (lambda d: d.pop("annotations"), "needs a list `annotations`"),
    ],
)
def test_a_mistake_in_a_coco_file_is_told_with_its_place(tmp_path, change, message):
    data = coco_form(*[(i, f"{i}.jpg", ["a ball"]) for i in range(3)])
    change(data)
    (tmp_path / "captions.json").write_text(json.dumps(data))
    (tmp_path / "splits.json").write_text(json.dumps({"train": [0, 9], "val": [1], "test": [2]}))
    with pytest.raises(UserError, match=message):
        read_coco(tmp_path / "captions.json", tmp_path, tmp_path / "splits.json")


def test_a_file_of_splits_is_checked(tmp_path):
    (tmp_path / "captions.json").write_text(json.dumps(coco_form((0, "0.jpg", ["a"]))))
    for splits, message in (
        ({"train": [0, "0"]}, r"train\[1\] \(line 1\): image 0 stands here a second time"),
        ({"dev": [0]}, 'split "dev" is unknown'),
        ({"train": 0}, "`train` is to be a list"),
    ):
        (tmp_path / "splits.json").write_text(json.dumps(splits))
        with pytest.raises(UserError, match=message):
            read_coco(tmp_path / "captions.json", tmp_path, tmp_path / "splits.json")


@needs_real_data
def test_real_flickr8k_reads_as_its_counts_say_and_tokenises_as_karpathy_did():
    corpus = read_karpathy(REAL / "flickr8k" / "dataset_flickr8k.json", REAL / "flickr8k" / "images")
    assert corpus.counts() == {"train": 5000, "val": 1000, "test": 1000}
    captions = [caption for image in corpus.images for caption in image.captions]
    assert len(captions) == 35_000
    equal = Counter(tokenise(caption.text) == caption.words for caption in captions)
    assert equal[True] / len(captions) > 0.999


@needs_real_data
def test_real_coco_captions_read_and_agree_with_karpathys_file(tmp_path):
    mini = REAL / "coco_mini"
    rows = json.loads((mini / "dataset_coco_mini.json").read_text())["images"]
    val = sorted(row["cocoid"] for row in rows if row["split"] == "val")  # the others are not of val2017
    (tmp_path / "splits.json").write_text(json.dumps({"train": val[:100], "val": val[100:130], "test": val[130:]}))
    corpus = read_coco(mini / "captions_val2017.json", mini / "images", tmp_path / "splits.json")
    assert corpus.counts() == {"train": 100, "val": 30, "test": len(val) - 130}
    theirs = {str(row["cocoid"]): {s["raw"].strip() for s in row["sentences"]} for row in rows}
    for image in corpus.images:
        assert {" ".join(raw.split()) for raw in theirs[image.id]} <= {caption.text for caption in image.captions}
