import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.features.extractor import ImageFeatures
from pipeline.features.feature_parts import FeatureParts


def make_features(rows, boxes=True):
    """Return features that differ between rows."""
    values = torch.as_tensor(np.asarray(rows)).float()
    regions = values[:, None, None].expand(-1, 2, 3) + torch.arange(3)
    box = values[:, None, None].expand(-1, 2, 4) / 100 if boxes else None
    return ImageFeatures(values[:, None].expand(-1, 5), regions, torch.full((len(values),), 2), box)


def write_parts(folder, boxes=True):
    """Write ten rows in batches of 4, 4 and 2."""
    parts = FeatureParts(folder, 4)
    for first in (8, 0, 4):
        assert parts.write(first, make_features(range(first, min(first + 4, 10)), boxes)).all()
    return parts


@pytest.mark.parametrize("boxes", [True, False])
def test_rows_are_read_from_any_file(tmp_path, boxes):
    parts = write_parts(tmp_path, boxes)
    found = parts.read(np.array([0, 3, 6, 9]))
    assert found["pooled"].dtype == found["regions"].dtype == np.float16
    assert found["pooled"][:, 4].tolist() == [0, 3, 6, 9]
    assert found["regions"][:, 1, 2].tolist() == [2, 5, 8, 11]
    assert found["region_count"].tolist() == [2] * 4
    assert ("boxes" in found) == boxes
    if boxes:
        assert found["boxes"].dtype == np.float32
        assert found["boxes"][:, 1, 3].tolist() == pytest.approx([0, 0.03, 0.06, 0.09])
    assert parts.read(np.arange(10))["pooled"][:, 0].tolist() == list(range(10))


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-10], lambda content: content[:200] + b"\7" + content[201:], lambda _: b""]
)
def test_a_missing_damaged_or_truncated_batch_does_not_count(tmp_path, damage):
    parts = write_parts(tmp_path)
    assert [parts.holds(first) for first in (0, 4, 8, 12)] == [True, True, True, False]
    path = tmp_path / "000000004.npz"
    path.write_bytes(damage(path.read_bytes()))
    assert [parts.holds(first) for first in (0, 4, 8)] == [True, False, True]
    assert parts.read(np.array([2, 8]))["pooled"][:, 0].tolist() == [2, 8]
    with pytest.raises(UserError, match=r"000000004.npz: missing or damaged .* check the disk"):
        parts.read(np.arange(10))
    parts.write(4, make_features(range(4, 8)))
    assert parts.read(np.arange(10))["pooled"][:, 0].tolist() == list(range(10))


@pytest.mark.parametrize(
    ("bit", "offset"),
    [(0, 0), (7, 6), (0, 8)],  # first entry of the zip file's directory: signature, version, encryption flag
)
def test_a_batch_with_a_flipped_bit_in_its_directory_does_not_count(tmp_path, bit, offset):
    parts = write_parts(tmp_path)
    path = tmp_path / "000000000.npz"
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") + offset] ^= 1 << bit
    path.write_bytes(content)
    assert not parts.holds(0)
    with pytest.raises(UserError, match=r"000000000\.npz: missing or damaged"):
        parts.read(np.arange(4))


@pytest.mark.parametrize("name", ["pooled", "regions", "region_count"])
def test_a_batch_without_one_of_its_arrays_does_not_count(tmp_path, name):
    parts = write_parts(tmp_path)
    with np.load(tmp_path / "000000004.npz") as content:
        arrays = {key: value for key, value in content.items() if key != name}
    np.savez(tmp_path / "000000004.npz", **arrays)
    assert not parts.holds(4)


def test_infinite_features_are_reported_and_not_written(tmp_path):
    features = make_features([0, 1])
    features = features._replace(regions=features.regions.clone())
    features.regions[1, 0, 0] = 70_000  # beyond half precision
    assert FeatureParts(tmp_path, 4).write(0, features).tolist() == [True, False]
    assert not list(tmp_path.iterdir())
