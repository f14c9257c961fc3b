"""YAML is read as DVC reads it, and errors name the file, with line and column if known."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from pipeline.config.load import load
from pipeline.config.reading import describe_error, parse_yaml
from pipeline.errors import UserError
from pipeline.section import Section


def get_load_error(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2\n", "line 2, column 1: the key seed is given twice"),
        ("train:\n  a: {x: 1, x: 2}\n", "line 2, column 13: the key x is given twice"),
        ("train:\n\tepochs: 1\n", "line 2, column 1: a tab; indent with blanks"),
        ("- seed\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("seed: [1\n", "line 2, column 1: cannot be read as YAML ("),
        ("seed: 1: 2\n", "line 1, column 8: cannot be read as YAML (mapping values are not allowed here); correct it"),
        (f"? 0x{'f' * 5000}\n: 1\n", "a whole number of about 6666 digits is too large"),
    ],
)
def test_yaml_errors_name_the_file_and_the_position(tmp_path, text, message):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    line = get_load_error(path)
    assert line.startswith(str(path))
    assert message in line


def test_a_missing_or_binary_file_is_reported(tmp_path):
    assert "no such file" in get_load_error(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in get_load_error(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1.19e-4", 1.19e-4),
        ("-.5", -0.5),
        ("012", 12),
        ("no", "no"),
        ("0o17", 15),
        ("1_000", 1000),
        ("1:30", "1:30"),
    ],
)
def test_scalars_are_read_as_dvc_reads_them(text, value):
    from dvc.utils.serialize import parse_yaml as parse_as_dvc

    assert parse_yaml(f"a: {text}", "here") == {"a": value}
    assert parse_as_dvc(f"a: {text}", "here") == {"a": value}


def test_a_file_may_state_that_it_is_yaml_1_2():
    from dvc.utils.serialize import parse_yaml as parse_as_dvc

    text = "%YAML 1.2\n---\na: no\n"
    assert parse_yaml(text, "here") == parse_as_dvc(text, "here") == {"a": "no"}


def test_another_version_of_yaml_is_refused():
    """In YAML 1.1 `no` is false, but DVC's parser ignores the stated version."""
    with pytest.raises(UserError, match=r"^here, line 2: expected YAML 1.2, got %YAML 1.1; remove the line$"):
        parse_yaml("# comment\n%YAML 1.1\n---\na: no\n", "here")


class SeedSection(Section):
    """A section with the bounds of a seed."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"seed": 2**63}, f"seed = {2**63} is not allowed: a number of at most {2**63 - 1}"),
        ({"seed": 1, 5: 2}, "unknown key 5; allowed: seed"),
        ({"seeds": 1}, "unknown key seeds = 1; did you mean seed? allowed: seed"),
    ],
)
def test_a_wrong_value_or_key_is_described_with_the_allowed_ones(content, line):
    with pytest.raises(ValidationError) as caught:
        SeedSection.model_validate(content)
    assert describe_error(caught.value, SeedSection)[1] == line
