"""Errors about records: one line with the key and the wrong value."""

import pytest

from pipeline.errors import UserError
from pipeline.runtime.records import MAX_DEPTH, Record, parse_json, parse_record


class Point(Record):
    x: int


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"x": True}, "a.json: x: Input should be a valid integer, and is true; again"),
        ({}, "a.json: x: Field required; again"),
        ({"x": 1, "y" * 70: 2}, f"a.json: {'y' * 60}…: Extra inputs are not permitted; again"),
        ([1], "a.json: Input should be a valid dictionary or instance of Point, and is a list of 1; again"),
        (
            dict.fromkeys(map(str, range(10_001))),
            "a.json: a mapping has 10,001 keys, at most 10,000 are allowed; again",
        ),
    ],
)
def test_a_wrong_value_is_described_in_one_line(value, line):
    with pytest.raises(UserError) as error:
        parse_record(value, Point, "a.json", "again")
    assert str(error.value) == line


@pytest.mark.parametrize("innermost", ["", "1", "{}", '"a"'])
def test_every_list_or_mapping_counts_as_a_level_of_nesting(innermost):
    levels = MAX_DEPTH - innermost.count("{")
    parse_json("[" * levels + innermost + "]" * levels, "a.json", "again")
    with pytest.raises(
        UserError, match=rf"^a\.json: not JSON that can be read \(nested more than {MAX_DEPTH} levels deep\); again$"
    ):
        parse_json("[" * (levels + 1) + innermost + "]" * (levels + 1), "a.json", "again")
