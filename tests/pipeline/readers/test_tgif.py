"""TGIF's published format: a table of URLs and sentences, lists of URLs, and missing GIFs."""

import pytest
from PIL import Image

from pipeline.errors import UserError
from pipeline.readers import read_corpus, read_tgif
from pipeline.readers.checks import check_corpus

HOST = "https://38.media.tumblr.com/9f6c25cc350f12aa74a7dc386a5c4985/tumblr_"
NAMES = [f"{letter}_500.gif" for letter in "abcdefghij"]
SPLITS = {"train": NAMES[:6], "val": NAMES[6:8], "test": NAMES[8:]}
ANNOTATIONS = {"captions": "tgif-v1.0.tsv", **{split: f"splits/{split}.txt" for split in SPLITS}}


def make_sentence(name):
    return f"a cat {name[0]} tries to catch a mouse, on a tablet."


@pytest.fixture
def folder(tmp_path):
    rows = [f"{HOST}{name}\t{make_sentence(name)}" for name in NAMES]
    rows += [f"{HOST}{SPLITS['test'][0]}\tA man is glaring"] * 2 + [f"{HOST}zz_250.gif\tin no list"]
    (tmp_path / "tgif-v1.0.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "splits").mkdir()
    (tmp_path / "images").mkdir()
    for split, names in SPLITS.items():
        (tmp_path / "splits" / f"{split}.txt").write_text("".join(f"{HOST}{name}\n" for name in names))
    for name in NAMES:
        frames = [Image.new("RGB", (6, 9), (grey,) * 3) for grey in (0, 90, 180)]
        frames[0].save(tmp_path / "images" / f"tumblr_{name}", save_all=True, append_images=frames[1:], duration=50)
    return tmp_path


def read(folder, **options):
    return read_corpus("tgif", "tgif", folder, ANNOTATIONS, folder / "images", **options)


def test_the_published_format_is_read_without_gifs_in_no_list(folder):
    corpus = read(folder, expected={"train": 6, "val": 2, "test": 2})
    assert [(image.file, image.split) for image in corpus.images] == [
        (f"tumblr_{name}", split) for split, names in SPLITS.items() for name in names
    ]
    # a repeated sentence counts once
    assert [caption.text for caption in corpus.images[8].captions] == [make_sentence("i_500.gif"), "A man is glaring"]
    assert corpus.images[0].captions[0].words == (
        "a",
        "cat",
        "a",
        "tries",
        "to",
        "catch",
        "a",
        "mouse",
        "on",
        "a",
        "tablet",
    )
    assert [path.name for path in corpus.sources] == ["tgif-v1.0.tsv", "train.txt", "val.txt", "test.txt"]


def test_missing_or_damaged_gifs_up_to_a_share_are_reported_and_left_out(folder, capsys):
    (folder / "images/tumblr_a_500.gif").unlink()
    broken = folder / "images/tumblr_g_500.gif"
    broken.write_bytes(broken.read_bytes()[:100])  # its first frame is whole
    corpus = read(folder, missing=0.2, expected={"train": 6, "val": 2, "test": 2})
    assert [image.file for image in corpus.skipped] == ["tumblr_a_500.gif", "tumblr_g_500.gif"]
    assert corpus.counts() == {"train": 5, "val": 1, "test": 2}
    printed = capsys.readouterr().err
    assert "warning: 2 of 10 images are missing or cannot be decoded, and are left out: " in printed
    assert "tumblr_a_500.gif: the image is missing" in printed
    with pytest.raises(
        UserError, match=r"tumblr_g_500.gif: .*; with it, 2 of 10 .* prepare.max_missing_share, 0.1"
    ) as error:
        read(folder, missing=0.1)
    assert "\n" not in error.value.args[0]
    with pytest.raises(UserError, match=r"a_500.gif: the image is missing, but the annotations name it; fetch it$"):
        read(folder)


def test_a_split_without_remaining_images_is_an_error(folder):
    for name in SPLITS["val"]:
        (folder / f"images/tumblr_{name}").unlink()
    with pytest.raises(UserError, match="images of the split val are skipped; each of"):
        read(folder, missing=0.5)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("tgif-v1.0.tsv", "no tab", "line 14: a line is a URL, a tab and a sentence"),
        ("tgif-v1.0.tsv", "tumblr.gif\ta cat", "line 14: a GIF's URL is expected here"),
        ("tgif-v1.0.tsv", "https://[1/a.gif\ta cat", "line 14: a GIF's URL is expected here"),
        ("tgif-v1.0.tsv", "https://1]/a.gif\ta cat", "line 14: a GIF's URL is expected here"),
        ("tgif-v1.0.tsv", "https://a.b/c.gif\t ", "line 14: the caption is empty"),
        ("splits/val.txt", "https://a.b/unknown.gif", 'line 3: the GIF "unknown.gif" has no sentence in tgif-v1.0.tsv'),
        ("splits/val.txt", f"{HOST}a_500.gif", 'line 3: GIF "tumblr_a_500.gif" occurs a second time'),
        ("splits/val.txt", "https://a.b/", "line 3: a GIF's URL is expected here"),
    ],
)
def test_a_mistake_is_reported_in_one_line_with_its_place(folder, file, line, message):
    with open(folder / file, "a") as out:
        out.write(line + "\n")
    lists = {split: folder / ANNOTATIONS[split] for split in SPLITS}
    with pytest.raises(UserError, match=message) as error:
        check_corpus(read_tgif(folder / "tgif-v1.0.tsv", lists), None)
    assert str(folder / file) in str(error.value)
    assert "\n" not in error.value.args[0]
