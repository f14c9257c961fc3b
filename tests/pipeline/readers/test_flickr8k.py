import json

import pytest
from PIL import Image

from pipeline.data.corpus import tokenise
from pipeline.errors import UserError
from pipeline.readers import read_corpus, read_flickr8k
from pipeline.readers.checks import check_corpus

CAPTIONS = """\
1_a.jpg#0\tA child in a pink dress is climbing up a set of stairs .
1_a.jpg#1\tA girl going into a wooden building .
2258277193_586949ec62.jpg.1#0\tpeople waiting for the subway
3_c.jpg#1\tTwo dogs#2 run .
3_c.jpg#0\tA black dog .
9_z.jpg#0\tNobody lists me .
2_b.jpg#0\tA man .
"""
LISTS = {"train": "3_c.jpg\n\n", "val": "1_a.jpg\r\n", "test": "2_b.jpg"}


@pytest.fixture
def folder(tmp_path):
    """Write the four text files in the published format, and the photos of the lists; return their folder."""
    (tmp_path / "captions").write_text(CAPTIONS)
    (tmp_path / "images").mkdir()
    for split, names in LISTS.items():
        (tmp_path / split).write_bytes(names.encode())
        Image.new("RGB", (6, 9)).save(tmp_path / "images" / names.strip())
    return tmp_path


def read(folder):
    return check_corpus(
        read_flickr8k(folder / "captions", {split: folder / split for split in LISTS}), folder / "images"
    )


def test_flickr8ks_text_format_is_read_without_images_in_no_list(folder):
    corpus = read(folder)
    assert [(image.id, image.file, image.split) for image in corpus.images] == [
        ("3_c.jpg", "3_c.jpg", "train"), ("1_a.jpg", "1_a.jpg", "val"), ("2_b.jpg", "2_b.jpg", "test"),
    ]  # fmt: skip
    assert [caption.text for caption in corpus.images[0].captions] == ["A black dog .", "Two dogs#2 run ."]
    assert corpus.images[1].captions[1].words == ("a", "girl", "going", "into", "a", "wooden", "building")
    annotations = {part: part for part in ("captions", *LISTS)}
    assert read_corpus("f", "flickr8k", folder, annotations, folder / "images").images == corpus.images


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("captions", CAPTIONS + "5_e.jpg a man\n", r"captions, line 8: a line is `image.jpg#0`, a tab"),
        ("captions", CAPTIONS + "1_a.jpg#0\tA man\n", r"captions, line 8: caption 1_a.jpg#0 occurs a second time"),
        ("captions", CAPTIONS + "1_a.jpg#7\t .\n", r"captions, line 8: the caption is empty"),
        ("captions", CAPTIONS.replace("2_b", "4_d"), r"test, line 1: image 2_b.jpg has no captions in captions"),
        (
            "train",
            "3_c.jpg\n1_a.jpg\n",
            r'val, line 1: image "1_a.jpg" occurs a second time, first at .*train, line 2',
        ),
        ("val", "\n", "no image is in the split val"),
        ("test", b"2_b\xe9.jpg", "test, line 1: the file cannot be read: not UTF-8"),
        ("test", None, "test: the annotation file is missing"),
    ],
)
def test_a_mistake_is_reported_with_file_and_line(folder, file, text, message):
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message) as error:
        read(folder)
    assert "\n" not in error.value.args[0]


def test_real_captions_in_the_text_format_are_those_of_karpathys_format(real_data, tmp_path):
    whole = json.loads((real_data / "flickr8k" / "dataset_flickr8k.json").read_text())["images"]
    rows = [row for split in LISTS for row in [r for r in whole if r["split"] == split][:40]]
    lines = [f"{row['filename']}#{k}\t{s['raw']}\n" for row in whole for k, s in enumerate(row["sentences"])]
    (tmp_path / "captions").write_text("".join(lines) + "2258277193_586949ec62.jpg.1#0\tA man\n")
    for split in LISTS:
        (tmp_path / split).write_text("".join(f"{row['filename']}\n" for row in rows if row["split"] == split))
    lists = {split: tmp_path / split for split in LISTS}
    corpus = check_corpus(read_flickr8k(tmp_path / "captions", lists), real_data / "flickr8k" / "images")
    assert [image.file for image in corpus.images] == [row["filename"] for row in rows]
    for image, row in zip(corpus.images, rows, strict=True):
        assert [c.text for c in image.captions] == [" ".join(s["raw"].split()) for s in row["sentences"]]
        assert [c.words for c in image.captions] == [tokenise(s["raw"]) for s in row["sentences"]]
