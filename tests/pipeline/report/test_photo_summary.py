"""The terminal's summary of a run on few photos."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings
from pipeline.report.photo_summary import compute_unknown_share, extrapolate_unknown_share, format_photo_summary
from pipeline.report.report_content import ReportContent


def test_a_word_that_occurs_more_than_min_count_times_in_training_captions_is_known():
    train = [["a", "dog", "a", "cat"], ["a", "dog"]]
    words = ["a", "dog", "cat", "bird"]
    assert compute_unknown_share(train, words, 0) == 1 / 4  # bird
    assert compute_unknown_share(train, words, 1) == 2 / 4  # cat and bird
    assert compute_unknown_share(train, words, 2) == 3 / 4


def test_unknown_words_are_expected_on_the_power_law_of_the_measured_shares():
    assert extrapolate_unknown_share(1600, {100: 0.2, 400: 0.1}) == pytest.approx(
        0.05
    )  # four times the photos halve the share
    assert extrapolate_unknown_share(400, {50: 0.4, 100: 0.2, 200: 0.1}) == pytest.approx(
        0.05
    )  # twice the photos halve it
    assert extrapolate_unknown_share(200, {50: 0.3, 100: 0.3}) == pytest.approx(0.3)
    assert extrapolate_unknown_share(800, {50: 0.3, 100: 0.6}) == 1.0  # a share is at most 1
    assert extrapolate_unknown_share(200, {50: 0.2, 100: 0.0}) < 1e-9


@pytest.fixture
def content(world):
    """Return the content of a report on eight captioned test photos, the third ranked last, and 16 training photos."""
    rows = pq.read_table(world.prepared / "images.parquet").to_pylist()
    rows += [{"image": 100 + n, "id": f"t{n}", "file": f"t{n}.jpg", "split": "train"} for n in range(16)]
    pq.write_table(pa.Table.from_pylist(rows), world.prepared / "images.parquet")
    texts = pq.read_table(world.prepared / "captions.parquet").to_pylist()
    caption_texts = [row | {"words": ["a", "dog", "on", f"place{row['image'] % 4}"]} for row in texts]
    caption_texts += [{"image": 100 + n, "text": "", "words": ["a", "dog", "on", "place0"]} for n in range(16)]
    pq.write_table(pa.Table.from_pylist(caption_texts), world.prepared / "captions.parquet")
    manifest = world.prepared / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"settings": {"min_count": 1}}))
    for path in (world.sweep / "captions.parquet", *world.root.glob("evaluation/*/captions.parquet")):
        captions = [
            row | {"caption": f"caption {row['image']}\x1b[31m", "rank_judge": 8 - abs(row["image"] - 6), "CIDEr": 0.1}
            for row in pq.read_table(path).to_pylist()
        ]
        pq.write_table(pa.Table.from_pylist(captions), path)

    results = read_results(world.sweep, world.evaluations, first=("mle",))
    return ReportContent(results, ReportSettings(), world.sweep, world.prepared, world.images)


def test_the_summary_begins_with_pretrained_models_and_shows_the_best_and_worst_captions(content, world):
    lines = format_photo_summary(content).splitlines()
    assert lines[2].split() == ["saywhich", "caption", world.images.as_posix(), "--preset", "base"]
    ranks = [line.strip() for line in lines if ": rank " in line]
    # image 6 has rank 8, its neighbours rank 7, and so on; 11 and 10 have the best ranks
    assert ranks == [
        "11.jpg: rank 3 of 8",
        "10.jpg: rank 4 of 8",
        "9.jpg: rank 5 of 8",
        "5.jpg: rank 7 of 8",
        "7.jpg: rank 7 of 8",
        "6.jpg: rank 8 of 8",
    ]
    first = lines[next(n for n, line in enumerate(lines) if "11.jpg" in line) + 1 :][:2]
    assert first[0].endswith(": caption 11\\x1b[31m")
    assert first[1].strip() == "a person: a <i>person</i> on image 11"


def test_the_summary_states_the_effect_of_more_photos(content):
    flat = " ".join(format_photo_summary(content).split())
    assert "a share of 40 photos has a 95 % interval of up to ±15 points" in flat  # 1.96 · 0.5 / √40
    # one of four words is the place, and training captions have one of the four places
    assert "Training photos: 16. Captions cannot contain 19% of the words in the human captions" in flat
    assert flat.endswith("The expected share is about 19% with 32 photos like these, and about 19% with 160.")


def test_the_command_quotes_a_folder_with_a_space(content, world):
    folder = world.images.with_name("my photos")
    world.images.rename(folder)
    line = format_photo_summary(replace(content, images_root=folder)).splitlines()[2]
    assert shlex.split(line) == ["saywhich", "caption", folder.as_posix(), "--preset", "base"]


def test_captions_of_one_photo_are_not_listed(content, world):
    assert "captions by" in format_photo_summary(content)
    for path in (world.sweep / "captions.parquet", *world.root.glob("evaluation/*/captions.parquet")):
        captions = [row for row in pq.read_table(path).to_pylist() if row["image"] == 6]
        pq.write_table(pa.Table.from_pylist(captions), path)
    assert "captions by" not in format_photo_summary(content)


def test_a_vocabulary_of_all_splits_gives_no_advice_on_training_photos(content, world):
    manifest = world.prepared / "manifest.json"
    counted = {"settings": {"min_count": 1, "count_words": "all"}}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | counted))
    summary = format_photo_summary(content)
    assert "Test photos: " in summary
    assert "Training photos: " not in summary


def test_drawn_images_and_many_photos_have_no_summary(content, monkeypatch):
    assert format_photo_summary(replace(content, simulated=True)) is None
    monkeypatch.setattr("pipeline.report.photo_summary.MIN_TEST_IMAGES", 40)
    assert format_photo_summary(content) is None
