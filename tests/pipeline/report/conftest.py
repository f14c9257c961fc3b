"""Two reports, written once, and the observatory's file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.selection import ReportSettings
from pipeline.report.report_page import write_report
from pipeline.worlds.scenes.scene_facts import FACTS, Scene, Thing


@pytest.fixture(scope="session")
def plain_report(build_world, tmp_path_factory) -> Path:
    """Of the world with three judges and no scores of single captions; three images."""
    world, out = build_world(tmp_path_factory.mktemp("plain"), False), tmp_path_factory.mktemp("plain-report")
    write_report(world.sweep, world.evaluations, world.prepared, world.images, out, ReportSettings(images=3))
    return out


@pytest.fixture(scope="session")
def full_report(build_world, tmp_path_factory) -> Path:
    """Of the world that has everything; four images and two systems of frozen speakers."""
    world, out = build_world(tmp_path_factory.mktemp("full"), True), tmp_path_factory.mktemp("full-report")
    settings = ReportSettings(images=4, frozen_speakers=("mle", "luo"))
    write_report(world.sweep, world.evaluations, world.prepared, world.images, out, settings, crossed=world.crossed)
    return out


@pytest.fixture
def one_scene() -> Callable[[Any], None]:
    """Makes every image of a world a drawn scene of two brown dogs, and all captions the same."""
    return _one_scene


def _one_scene(world: Any) -> None:
    box = (0.1, 0.5, 0.4, 0.8)
    dogs = Thing("dog", "brown", "plain", "medium", 2, "running", "ground", "left", (box, box), box)
    scene = Scene("farm", "clear", "night", 0.45, 0.45, {}, (dogs,))
    rows = pq.read_table(world.prepared / "images.parquet").to_pylist()
    (world.prepared / FACTS).write_text(
        "".join(json.dumps({"imgid": int(row["id"]), **scene.record()}) + "\n" for row in rows)
    )
    for path in (world.sweep / "captions.parquet", *world.root.glob("evaluation/*/captions.parquet")):
        said = [row | {"caption": "two red dogs and a cat on a farm"} for row in pq.read_table(path).to_pylist()]
        pq.write_table(pa.Table.from_pylist(said), path)


def observed_row(name, samples, bias, variance, score="hinge", exact=True, seconds=0.01, **settings):
    """An estimator in two worlds: bias and variance in the first, both doubled in the second."""
    worlds = [
        {"bias": k * bias, "bias_error": 0.0 if exact else 0.05, "cosine": 0.9, "length": 0.8, "variance": k * variance}
        for k in (1, 2)
    ]
    found = {"score": score, "name": name, "settings": settings, "samples": samples, "exact": exact, "worlds": worlds}
    return found if seconds is None else found | {"seconds": seconds}


def observed_rows():
    yield observed_row("REINFORCE, greedy, centred", 4, 0.1, 2.0, exact=False)
    yield observed_row("REINFORCE, greedy, centred", 16, 0.1, 0.5, exact=False, seconds=0.04)
    for samples in (1, 4, 16):
        seconds = 0.01 * samples
        yield observed_row("ST-Gumbel", samples, 0.5, 4.0 / samples, exact=False, seconds=seconds, temperature=0.5)
        for rho, bias, variance in ((0.0, 0.5, 4.0), (0.5, 0.6, 2.0), (1.0, 1.0, 0.4)):
            yield observed_row("PSST-Multinomial", samples, bias, variance / samples, seconds=seconds, rho=rho)
            yield observed_row("PSST-Multinomial", samples, bias / 2, 1.0, "hinge among images", seconds=None, rho=rho)


@pytest.fixture
def observed(tmp_path) -> Path:
    """The observatory's file, its numbers round."""
    content = {
        "effort": {"worlds": 2, "epochs": 40, "samples": [1, 4, 16], "rounds": 200, "repeats": 3},
        "margin": 1.0,
        "large": {"images": 8, "vocabulary": 300, "max_words": 12, "size": 128},
        "rows": list(observed_rows()),
    }
    path = tmp_path / "observatory.json"
    path.write_text(json.dumps(content))
    return path
