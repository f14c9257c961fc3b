"""Positions and names in annotation files."""

import pytest

from pipeline.errors import UserError
from pipeline.readers.annotation_file import FileRow, JsonFile, UniqueNames

ELEMENTS = '[\n{"id": 1},\n{"id": 2}]'


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        (f'{{"rows": {ELEMENTS}}}', "rows", 3),
        (f'{{"other": {{"rows": []}},\n"rows": {ELEMENTS}}}', "rows", 4),
        (f'{{"rows": [],\n"rows" : {ELEMENTS}}}', "rows", 4),
        (f'{{"text": "\\"rows\\": [",\n"rows": {ELEMENTS}}}', "rows", 4),
        (f'{{"\\u0072ows": {ELEMENTS}}}', "rows", 3),
        (f'{{"n": -1.5e3, "行": {ELEMENTS}}}', "行", 3),
    ],
)
def test_an_error_names_the_line_of_the_element_of_the_outer_list(tmp_path, text, key, line):
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    entry = JsonFile(tmp_path / "a.json").entries(key)[1]
    with pytest.raises(UserError, match=rf"{key}\[1\] \(line {line}\): `id` is 2, and a text is expected"):
        entry.get("id", str)


def test_names_are_equal_as_texts_and_are_whole_numbers_or_texts(tmp_path):
    names = UniqueNames("image id")
    names.add(1, FileRow(tmp_path, 1))
    with pytest.raises(UserError, match=r'row 2: image id "1" occurs a second time, first at row 1'):
        names.add("1", FileRow(tmp_path, 2))
    for wrong, shown in ((1.5, "1.5"), (True, "true")):
        with pytest.raises(UserError, match=f"image id must be a whole number or a text, not {shown}"):
            names.add(wrong, FileRow(tmp_path, 2))


@pytest.mark.parametrize(
    ("written", "is_lone"),
    [
        (r"\ud83d\ude00", False),
        (r"\\ud83d", False),
        (r"\"\u0041\ud83d\ude00\ud83d\ude00", False),
        (r"\ud83d", True),
        (r"\ude00\ud83d", True),
        (r"\ud83d\ud83d\ude00", True),
        (r"\\\ud83d\\ude00", True),
    ],
)
def test_a_lone_surrogate_is_reported(tmp_path, written, is_lone):
    (tmp_path / "a.json").write_text(f'{{"images":\n["{written}"]}}')
    if is_lone:
        with pytest.raises(UserError, match=r"a\.json, line 2: a lone surrogate"):
            JsonFile(tmp_path / "a.json")
    else:
        assert len(JsonFile(tmp_path / "a.json").entries("images")) == 1
