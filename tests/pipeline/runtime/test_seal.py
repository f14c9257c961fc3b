"""A folder whose files are other ones than were written is named."""

import pytest

from pipeline.errors import UserError
from pipeline.runtime.seal import SEAL, check_seal, seal


def test_a_file_that_is_changed_emptied_swapped_or_missing_is_named(tmp_path):
    check_seal(tmp_path, "again")  # never sealed
    for name in "ab":
        (tmp_path / name).write_text(name * 100)
    (tmp_path / ".b.1234.part").touch()
    seal(tmp_path)
    check_seal(tmp_path, "again")
    for content in ("b" * 99 + "c", "b" * 99, "", "a" * 100, None):
        (tmp_path / "b").unlink() if content is None else (tmp_path / "b").write_text(content)
        with pytest.raises(UserError, match=r"/b: is missing, or its bytes .*; again"):
            check_seal(tmp_path, "again")
    (tmp_path / "b").write_text("b" * 100)
    for content in ("", "[]", '{"a": 1'):
        (tmp_path / SEAL).write_text(content)
        with pytest.raises(UserError, match=SEAL):
            check_seal(tmp_path, "again")
