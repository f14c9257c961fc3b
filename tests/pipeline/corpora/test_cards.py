import pytest
from whole_profiles import load_profile

from pipeline.corpora import cards
from pipeline.errors import UserError

CARD = """
title = "Balls"
images = 3
captions = 5
splits = { train = 1, val = 1, test = 1 }
licence = "none"
citation = "Nobody, 2020"

[[archives]]
file = "a.zip"
url = "http://balls.example/a.zip"
bytes = 10
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
members = "a/*"
folder = "images"
files = 3
unpacked = 100
"""


@pytest.mark.parametrize("name", cards.list_card_names())
def test_a_card_is_complete_and_its_numbers_agree(name):
    card = cards.load_card(name)
    assert sum(card.splits.values()) == card.images
    images = [archive for archive in card.archives if archive.folder.startswith("images")]
    assert sum(archive.min_used_files or archive.files for archive in images) == card.images
    for archive in card.archives:
        assert (archive.min_used_files or 0) <= archive.files
        if archive.bytes:
            assert archive.unpacked >= archive.bytes // 2


@pytest.mark.parametrize("name", cards.list_card_names())
def test_a_card_lists_the_files_that_its_profile_reads(name):
    prepare = load_profile(name)["prepare"]
    card = cards.load_card(name)
    assert prepare["root"] == f"data/external/{name}"
    annotations = prepare["annotations"]
    files = set(annotations.values()) if isinstance(annotations, dict) else {annotations}
    assert files <= {entry.file for entry in card.manual if not entry.optional}
    assert all(
        archive.folder.split("/")[0] == prepare["images"] for archive in card.archives if ".jpg" in archive.members
    )
    for source in (source for source in card.archives if source.profile):
        files = load_profile(source.profile)["prepare"]["annotations"].values()
        assert {file.split("/")[0] for file in files} == {source.folder}


def test_cards_have_the_published_splits():
    splits = {name: tuple(cards.load_card(name).splits.values()) for name in cards.list_card_names()}
    assert splits == {
        "coco": (113_287, 5_000, 5_000),
        "flickr30k": (29_000, 1_014, 1_000),
        "flickr8k": (6_000, 1_000, 1_000),
        "tgif": (80_000, 10_708, 11_360),
        "visdial": (81_783, 1_000, 40_504),
    }


def test_an_unknown_card_is_reported_with_the_known_ones():
    with pytest.raises(UserError, match="DATASET=coc: no such data card; choose one of: coco, flickr30k, flickr8k"):
        cards.load_card("coc")
    with pytest.raises(UserError, match="no such data card"):
        cards.load_card("../cards/coco")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("images = 3", "images = ", "not TOML"),
        ("images = 3", 'images = "3"', "images: Input should be a valid integer"),
        ('licence = "none"', "", "licence: Field required"),
        ("images = 3", "images = 3\nimage = 3", "image: Extra inputs"),
        ("bytes = 10", "", "needs bytes and sha256"),
        ('sha256 = "00', 'sha256 = "', "sha256: String should match"),
        ('url = "http://balls.example/a.zip"', "", "needs instructions"),
        ("http://balls.example/a.zip", "file:///a.zip", "url: String should match"),
        ('file = "a.zip"', 'file = "../a.zip"', "file: String should match"),
        ('folder = "images"', 'folder = "/images"', "folder: String should match"),
        ('file = "a.zip"', 'file = "a.rar"', "file: String should match"),
    ],
)
def test_a_mistake_in_a_card_is_reported_in_one_line(tmp_path, old, new, message):
    path = tmp_path / "balls.toml"
    path.write_text(CARD)
    assert cards.read_card(path).name == "balls"
    assert old in CARD
    path.write_text(CARD.replace(old, new))
    with pytest.raises(UserError, match=message) as error:
        cards.read_card(path)
    assert str(path) in str(error.value)
    assert "\n" not in error.value.args[0]


@pytest.mark.parametrize(("files", "missing", "expected"), [(10, 0.7, 3), (100, 0.29, 71), (3, 0.5, 2), (7, 0.0, 7)])
def test_the_number_of_files_that_may_be_missing_is_rounded_down(files, missing, expected):
    options = {"file": "a.zip", "instructions": "a form", "members": "*", "folder": "a", "unpacked": 1}
    assert cards.ArchiveSource(files=files, missing=missing, **options).min_files == expected
