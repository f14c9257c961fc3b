import pytest

from pipeline.errors import UserError
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.processor_seconds import format_history, read_processor_seconds, write_processor_seconds

HISTORY = [{"epoch": 1, "loss": 0.1}, {"epoch": 2, "loss": 1 / 3}]


def test_times_are_read_by_the_history_that_they_belong_to(tmp_path):
    write_processor_seconds(tmp_path, HISTORY, [1.5, 2.5])
    assert read_processor_seconds(tmp_path, HISTORY) == [1.5, 2.5]
    assert read_processor_seconds(tmp_path, HISTORY[:1]) is None
    assert read_processor_seconds(tmp_path / "absent", HISTORY) is None
    (tmp_path / "history.jsonl").write_text(format_history(HISTORY))
    assert [path.stem for path in tmp_path.glob("*.json")] == [compute_sha256(tmp_path / "history.jsonl")]


def test_damaged_times_are_reported_with_their_file(tmp_path):
    write_processor_seconds(tmp_path, HISTORY, [1.5, 2.5])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(b"2.5", b"2.4"))
    with pytest.raises(UserError, match=rf"{path.name}: its bytes have changed; remove it"):
        read_processor_seconds(tmp_path, HISTORY)
    write_processor_seconds(tmp_path, HISTORY, [1.5])
    with pytest.raises(UserError, match=rf"{path.name}: expected 2 times, found 1; remove it"):
        read_processor_seconds(tmp_path, HISTORY)
