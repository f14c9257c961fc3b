from collections import Counter

import pytest

from pipeline.data.corpus import tokenise
from pipeline.errors import UserError
from pipeline.readers import read_karpathy
from pipeline.readers.checks import check_corpus


def test_karpathys_format_is_read(karpathy):
    corpus = read_karpathy(karpathy()[0])
    assert corpus.name == "balls"
    assert corpus.counts() == {"train": 4, "val": 2, "test": 2}  # restval joins train
    assert [image.file for image in corpus.images[:3]] == ["0.jpg", "part/1.jpg", "2.jpg"]
    assert [len(image.captions) for image in corpus.images] == [1, 2, 3, 4, 5, 1, 2, 3]
    assert corpus.images[1].captions[1].words == ("the", "red", "ball")
    assert corpus.images[1].captions[1].text == "the red ball."


def test_a_corpus_is_equal_with_and_without_a_folder_of_images(karpathy):
    annotations, images = karpathy()
    assert check_corpus(read_karpathy(annotations), None) == check_corpus(read_karpathy(annotations), images)


def test_sentences_without_tokens_are_tokenised(karpathy):
    def change(data):
        data["images"][0]["sentences"][0] = {"raw": "  A T-shirt, it's BIG!\nTwo 'n' 3. "}

    caption = read_karpathy(karpathy(change=change)[0]).images[0].captions[0]
    assert caption.words == ("a", "t", "shirt", "it's", "big", "two", "n", "3")
    assert caption.text == "A T-shirt, it's BIG! Two 'n' 3."


MISTAKES = {
    "no captions": (
        lambda d: d["images"][1].update(sentences=[]),
        r"images\[1\] \(line \d+\): image part/1.jpg has no c",
    ),
    "no sentences": (lambda d: d["images"][1].pop("sentences"), r"images\[1\] \(line \d+\): `sentences` is missing"),
    "another image": (
        lambda d: d["images"][2]["sentences"][1].update(imgid=77),
        r"images\[2\].sentences\[1\] \(line \d+\): the caption is of image 77",
    ),
    "empty": (lambda d: d["images"][2]["sentences"][0].update(raw=" ", tokens=[]), r"sentences\[0\].*caption is empty"),
    "no words": (lambda d: d["images"][2]["sentences"].append({"raw": "?!"}), r"sentences\[3\].*caption is empty"),
    "image id twice": (
        lambda d: d["images"][3].update(imgid=1),
        r"images\[3\].*image id 1 occurs a second time.*images\[1\]",
    ),
    "image twice": (
        lambda d: d["images"][3].update(filename="1.jpg", imgid=99, sentences=[{"raw": "a"}]),
        r"images\[3\].*image file \"part/1.jpg\" occurs a second time, first at images\[1\]",
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
        "`tokens` must be a list of words",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_karpathy_file_is_reported_with_its_place(karpathy, name):
    change, message = MISTAKES[name]
    annotations, images = karpathy(change=change)
    with pytest.raises(UserError, match=message) as error:
        check_corpus(read_karpathy(annotations), images)
    assert str(annotations) in str(error.value)
    assert "\n" not in error.value.args[0]


def test_the_reported_line_begins_the_image(karpathy):
    annotations, images = karpathy(change=lambda d: d["images"][3].update(split="x"))
    lines = annotations.read_text().splitlines()
    with pytest.raises(UserError) as error:
        check_corpus(read_karpathy(annotations), images)
    line = int(str(error.value).split("(line ")[1].split(")")[0])
    assert lines[line - 1].strip() == "{"
    assert '"filename": "3.jpg"' in lines[line]


def test_invalid_json_is_reported_with_line_and_column(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{"images": [\n{"filename": }]}')
    with pytest.raises(UserError, match=r"broken.json, line 2, column 14: not JSON"):
        check_corpus(read_karpathy(path), tmp_path)
    with pytest.raises(UserError, match="the annotation file is missing"):
        check_corpus(read_karpathy(tmp_path / "none.json"), tmp_path)


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
        check_corpus(read_karpathy(annotations), images)


def test_a_missing_folder_of_images_is_reported(karpathy, tmp_path):
    annotations, _ = karpathy()
    with pytest.raises(UserError, match="elsewhere: the folder of images does not exist"):
        check_corpus(read_karpathy(annotations), tmp_path / "elsewhere")


@pytest.mark.slow
def test_real_flickr8k_has_7000_images_and_karpathys_tokens(real_data):
    corpus = check_corpus(
        read_karpathy(real_data / "flickr8k" / "dataset_flickr8k.json"), real_data / "flickr8k" / "images"
    )
    # the real data lack the images of the published test split
    assert corpus.counts() == {"train": 5000, "val": 1000, "test": 1000}
    captions = [caption for image in corpus.images for caption in image.captions]
    assert len(captions) == 35_000
    equal = Counter(tokenise(caption.text) == caption.words for caption in captions)
    assert equal[True] / len(captions) > 0.999
