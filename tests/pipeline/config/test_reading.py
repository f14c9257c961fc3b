"""YAML as DVC reads it, and its mistakes with their places."""

from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.config.reading import parse_yaml
from pipeline.errors import UserError

ROOT = Path(__file__).parents[1]


def error_of(path: Path) -> str:
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
        ("seed: [1\n", "line 2, column 1: "),
        ("seed: 1: 2\n", "line 1, column 8: "),
    ],
)
def test_yaml_errors_name_their_place(tmp_path, text, message):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    line = error_of(path)
    assert line.startswith(str(path))
    assert message in line


def test_a_missing_or_binary_file_is_reported(tmp_path):
    assert "no such file" in error_of(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in error_of(tmp_path / "params.yaml")


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
