"""Bags of look-alike photos: their formation by hand and by definition, near-duplicates, files, page and command."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from PIL import Image

import saywhich
from pipeline.errors import UserError
from saywhich.bagging import bag_formation
from saywhich.bagging.bag_formation import find_earlier_duplicates, form_bags
from saywhich.cli import main
from saywhich.judging.thumbnails import COLOURS, MAX_COLOUR_DIFFERENCE, Thumbnails


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Write three photos each of two kinds, a copy of a1 with other pixels, and one photo of a third kind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    ramp = np.linspace(0, 1, 64)
    kinds = {"a": np.tile(ramp, (64, 1)), "b": np.tile(ramp[:, None], (1, 64)), "c": np.eye(64)}
    shades = {"a1": 1.0, "a2": 0.9, "below/a3": 0.8, "b1": 1.0, "b2": 0.9, "b3": 0.8, "c": 1.0, "a1_again": 0.98}
    for name, shade in shades.items():
        kind = kinds[name.split("/")[-1][0]]
        pixels = (255 * shade * np.stack([kind, kind / 2, kind / 3], 2)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    return folder


def test_look_alikes_share_a_bag_and_near_duplicates_are_removed(photos):
    found = saywhich.bags("photos", size=3, min_cosine=0.5)
    assert {frozenset(map(found.name, bag.photos)) for bag in found.bags} == {
        frozenset({"a1.png", "a2.png", "below/a3.png"}),
        frozenset({"b1.png", "b2.png", "b3.png"}),
    }
    assert [tuple(map(found.name, pair)) for pair in found.near_duplicates] == [("a1_again.png", "a1.png")]
    assert [found.name(photo) for photo in found.ungrouped] == ["c.png"]
    assert found.summary == (
        "8 photos, 1 near-duplicates removed; 2 bags of 3 look-alikes by thumbnail, 1 photos in no bag"
    )


def test_the_command_writes_bags_galleries_and_a_page(photos, capsys):
    outputs = [word for name in ("json", "galleries", "html") for word in (f"--{name}", f"out.{name}")]
    assert main(["bags", "photos", "--size", "3", "--max-bags", "1", *outputs]) == 0
    _, bag = capsys.readouterr().out.splitlines()
    record = json.loads((photos.parent / "out.json").read_text())
    assert record["photos"] == 8
    assert record["near_duplicates"] == [["a1_again.png", "a1.png"]]
    assert bag.split("\t")[1:] == record["bags"][0]["photos"]
    assert record["in_no_bag"] == sorted(
        {"a1.png", "a2.png", "b1.png", "b2.png", "b3.png", "c.png", "below/a3.png"} - set(record["bags"][0]["photos"]),
        key=lambda name: ("/" in name, name),
    )
    galleries = json.loads((photos.parent / "out.galleries").read_text())
    photos_of_bag = record["bags"][0]["photos"]
    assert {name: sorted([name, *others]) for name, others in galleries.items()} == dict.fromkeys(
        photos_of_bag, sorted(photos_of_bag)
    )
    page = (photos.parent / "out.html").read_text()
    assert page.count("<img") == page.count('src="data:image/jpeg;base64,') == 3
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("name", "shown"), [(os.fsdecode(b"\xff.png"), r"\xff.png"), ("x\u202egpj.png", r"x\u202egpj.png")]
)
def test_hidden_characters_of_names_are_written_as_escapes(photos, name, shown):
    (photos / "c.png").rename(photos / name)
    options = ["--size", "2", "--min-cosine", "-1", "--json", "found.json", "--html", "found.html"]
    assert main(["bags", "photos", *options]) == 0
    found = json.loads((photos.parent / "found.json").read_text(encoding="utf-8"))
    assert name in [photo for bag in found["bags"] for photo in bag["photos"]]
    assert f"<br>{shown}" in (photos.parent / "found.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, "--size 1: a bag holds 2 photos or more"),
        ({"size": 8}, "photos: --size 8 needs 8 distinct photos, found 7; give a smaller --size, or more photos"),
        ({"max_bags": 0}, "--max-bags 0: give 1 or more"),
        ({"min_cosine": 1.5}, "--min-cosine 1.5: give a cosine, −1 … 1"),
    ],
)
def test_impossible_bags_are_refused(photos, options, message):
    with pytest.raises(UserError, match="^" + message):
        saywhich.bags("photos", **options)
    with pytest.raises(UserError, match=r"^a photo's path is empty"):
        saywhich.bags("")


def test_edge_histograms_of_thumbnails_by_hand():
    """A step from black to white has edges of one direction in eight of the 4 × 4 cells, as its negative has."""
    step, encoder = np.zeros((32, 32, 3), np.uint8), Thumbnails()
    step[:, 16:] = 255
    prepared = [encoder.prepare(photo) for photo in (step, 255 - step, step.transpose(1, 0, 2))]
    found = encoder.encode_photos(prepared)[:, COLOURS:].reshape(3, 8, 4, 4)
    expected = np.zeros((3, 8, 4, 4))
    expected[:2, 0, :, 1:3] = expected[2, 4, 1:3, :] = 1 / np.sqrt(8)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_bags_by_hand():
    # angles of unit vectors in degrees; the mean is 0, since each vector has its opposite
    angles = torch.tensor([0.0, 10, 24, 90, 97, 180, 190, 204, 270, 277], dtype=torch.float64).deg2rad()
    found = form_bags(torch.stack([angles.cos(), angles.sin()], 1), 2, 0.9)
    assert sorted(sorted(bag) for bag in found.members[:2].tolist()) == [[3, 4], [8, 9]]
    assert sorted(sorted(bag) for bag in found.members[2:].tolist()) == [[0, 1], [5, 6]]
    expected = np.cos(np.deg2rad([7, 7, 10, 10]))
    assert found.cosines[:, 0] == pytest.approx(expected, abs=1e-12)


def test_bags_follow_their_definition():
    vectors = torch.from_numpy(np.random.default_rng(0).standard_normal((90, 4)))
    found = form_bags(vectors, 4, -1.0)
    unit = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    cosines = (unit @ unit.T).numpy()
    free = set(range(90))
    for members, own in zip(found.members.tolist(), found.cosines, strict=True):
        bags = {}
        for row in free:
            nearest = sorted(free - {row}, key=lambda other: -cosines[row, other])[:3]
            bags[row] = cosines[row, nearest[-1]], nearest
        best = max(bags, key=lambda row: (bags[row][0], -row))
        assert members == [best, *bags[best][1]]
        assert own == pytest.approx(cosines[best, bags[best][1]], abs=1e-12)
        free -= set(members)
    assert len(found.members) > 15


@pytest.mark.parametrize("block", [2**22, COLOURS * 2])
def test_near_duplicates_follow_their_definition(monkeypatch, block):
    monkeypatch.setattr(bag_formation, "BLOCK", block)
    colours = torch.from_numpy(np.random.default_rng(1).random((60, 1)) * 0.6).float().repeat(1, COLOURS)
    colours[::3, 7] += 0.1  # one cell of a third of the photos differs, with a small effect on Euclidean distances
    found = find_earlier_duplicates(colours)
    expected = []
    for row, own in enumerate(colours):
        duplicates = [
            n for n in range(row) if expected[n] < 0 and float((own - colours[n]).abs().max()) <= MAX_COLOUR_DIFFERENCE
        ]
        expected.append(duplicates[0] if duplicates else -1)
    assert found.tolist() == expected
    assert 10 < (found < 0).sum() < 25
