import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.features.extractor import Seen
from pipeline.features.rows import Rows


def seen(rows, boxes=True):
    """What rows look like: every number tells its row."""
    values = torch.as_tensor(np.asarray(rows)).float()
    regions = values[:, None, None].expand(-1, 2, 3) + torch.arange(3)
    box = values[:, None, None].expand(-1, 2, 4) / 100 if boxes else None
    return Seen(values[:, None].expand(-1, 5), regions, torch.full((len(values),), 2), box)


def rows_in(folder, images=10, boxes=True):
    return Rows(folder, images, 5, (2, 3), boxes)


def write(folder, start, stop, batch=2, boxes=True):
    with rows_in(folder, boxes=boxes).writing(start, stop) as file:
        for first in range(start, stop, batch):
            part = np.arange(first, min(first + batch, stop))
            assert file.write(part, seen(part, boxes)).all()


@pytest.mark.parametrize("boxes", [True, False])
def test_rows_come_back_whichever_file_holds_them(tmp_path, boxes):
    for start, stop in ((6, 10), (0, 4), (3, 7)):
        write(tmp_path, start, stop, boxes=boxes)
    rows = rows_in(tmp_path, boxes=boxes)
    assert rows.whole().all()
    records = rows.read(np.array([0, 3, 6, 9]))
    assert records["pooled"][:, 4].tolist() == [0, 3, 6, 9]
    assert records["regions"][:, 1, 2].tolist() == [2, 5, 8, 11]
    assert records["region_count"].tolist() == [2] * 4
    assert ("boxes" in records.dtype.names) == boxes


def test_a_row_that_is_missing_damaged_or_cut_off_is_not_whole(tmp_path):
    write(tmp_path, 0, 10)
    path, size = tmp_path / "000000000-000000010.rows", rows_in(tmp_path).record.itemsize
    content = bytearray(path.read_bytes())
    content[3 * size + 7] ^= 1  # one bit of row 3
    content[5 * size : 6 * size] = bytes(size)  # row 5 was never written
    content[6 * size : 7 * size] = content[7 * size : 8 * size]  # row 7, whole, in the place of row 6
    path.write_bytes(content[: 9 * size + 10])  # row 9 in part
    rows = rows_in(tmp_path)
    assert np.flatnonzero(~rows.whole()).tolist() == [3, 5, 6, 9]
    assert rows.read(np.array([2, 8]))["pooled"][:, 0].tolist() == [2, 8]
    write(tmp_path, 4, 8)  # another division of the work: its file holds 5 and 6 as well
    assert np.flatnonzero(~rows_in(tmp_path).whole()).tolist() == [3, 9]
    with rows_in(tmp_path).writing(0, 10) as file:  # the old file goes on
        file.write(np.array([3]), seen([3]))
        file.write(np.array([9]), seen([9]))
    rows = rows_in(tmp_path)
    assert rows.whole().all()
    assert rows.read(np.arange(10))["pooled"][:, 0].tolist() == list(range(10))


def test_damage_after_the_look_is_noticed(tmp_path):
    write(tmp_path, 0, 10)
    rows = rows_in(tmp_path)
    rows.whole()
    path = tmp_path / "000000000-000000010.rows"
    content = bytearray(path.read_bytes())
    content[4 * rows.record.itemsize] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="row 4 was whole and is not any more"):
        rows.read(np.arange(10))


def test_what_is_not_finite_is_told_and_never_whole(tmp_path):
    with rows_in(tmp_path).writing(0, 10) as file:
        some = seen([0, 1])
        some = some._replace(regions=some.regions.clone())
        some.regions[1, 0, 0] = 70_000  # beyond half precision
        assert file.write(np.array([0, 1]), some).tolist() == [True, False]
    assert np.flatnonzero(rows_in(tmp_path).whole()).tolist() == [0]


def test_an_empty_folder_has_nothing_and_is_removed(tmp_path):
    rows = rows_in(tmp_path / "work")
    assert not rows.whole().any()
    write(tmp_path / "work", 0, 4)
    rows.remove()
    assert not (tmp_path / "work").exists()
