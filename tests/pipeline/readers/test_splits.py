import hashlib
import json

import pytest

from pipeline.errors import UserError
from pipeline.readers.splits import draw_split, read_splits

FORMATS = {
    "lists": {"train": [9, "b.jpg"], "restval": [42], "val": ["c.jpg"], "test": []},
    "karpathy": {
        "images": [
            {"filename": name, "split": split, "filepath": "val2014", "cocoid": 1}
            for name, split in (("9", "train"), ("b.jpg", "train"), ("42", "restval"), ("c.jpg", "val"))
        ]
    },
    "cocotalk": {
        "ix_to_word": {"1": "a"},
        "images": [
            {"split": "train", "id": 9},
            {"split": "train", "file_path": "train2014/b.jpg", "id": 7},
            {"split": "restval", "id": 42},
            {"split": "val", "file_path": "val2014/c.jpg", "id": 8},
        ],
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_three_formats_give_the_same_splits(name, tmp_path):
    (tmp_path / "splits.json").write_text(json.dumps(FORMATS[name]))
    splits = read_splits(tmp_path / "splits.json")
    assert splits.by_image == {"9": "train", "b.jpg": "train", "42": "train", "c.jpg": "val"}
    assert splits.restval == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"train": [0, "0"]}, r"train\[1\] \(line 1\): image 0 occurs here a second time"),
        ({"train": [0, None]}, r"train\[1\].*expected an image id or a file name, found null"),
        ({"train": [True]}, r"train\[0\].*expected an image id or a file name, found true"),
        ({"train": [1.5]}, r"train\[0\].*expected an image id or a file name, found 1.5"),
        ({"dev": [0]}, r'dev\[0\].*the split "dev" is unknown'),
        ({"train": 0}, "`train` must be a list"),
        ({"images": [{"filename": "a.jpg"}]}, r"images\[0\].*`split` is missing"),
        ({"images": [{"split": "val"}]}, r"images\[0\].*`filename` is missing"),
        (
            {"images": [{"split": "val", "id": 1}, {"split": "test", "id": 1}]},
            r"images\[1\].*image 1 occurs here a second",
        ),
        ({"images": [{"split": "dev", "id": 1}]}, r"images\[0\].*the split \"dev\" is unknown"),
    ],
)
def test_a_mistake_in_a_file_of_splits_is_reported_with_its_place(data, message, tmp_path):
    (tmp_path / "splits.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=message) as error:
        read_splits(tmp_path / "splits.json")
    assert str(tmp_path / "splits.json") in str(error.value)


def test_random_splits_are_blake2b_of_seed_and_name():
    values = {}
    for name in ("a.jpg", "trip/b.jpg", "c.png"):
        digest = hashlib.blake2b(f"7\n{name}".encode(), digest_size=8).hexdigest()
        values[name] = int(digest, 16) / 16**16
    for name, value in values.items():
        expected = "val" if value < 0.4 else "test" if value < 0.7 else "train"
        assert draw_split(name, 0.4, 0.3, 7) == expected


def test_shares_are_met_within_three_of_the_documented_standard_deviations():
    names = [f"{i}.jpg" for i in range(10_000)]
    for seed in (0, 1):
        drawn = [draw_split(name, 0.1, 0.2, seed) for name in names]
        assert abs(drawn.count("val") - 1000) < 3 * 30  # three standard deviations, √(n·p·(1 − p))
        assert abs(drawn.count("test") - 2000) < 3 * 40
    assert drawn != [draw_split(name, 0.1, 0.2, 0) for name in names]
