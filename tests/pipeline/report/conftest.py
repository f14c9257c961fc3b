"""Reports that are written once in a session, and a world of one scene."""

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
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene, Thing


@pytest.fixture(scope="session")
def plain_report(build_world, tmp_path_factory) -> Path:
    """Write a report of three images for the world with three judges and no scores of single captions."""
    world, out = build_world(tmp_path_factory.mktemp("plain"), False), tmp_path_factory.mktemp("plain-report")
    write_report(world.sweep, world.evaluations, world.prepared, world.images, out, ReportSettings(images=3))
    return out


@pytest.fixture(scope="session")
def full_report(build_world, tmp_path_factory) -> Path:
    """Write a report of four images and two frozen speakers for the world with scores of single captions."""
    world, out = build_world(tmp_path_factory.mktemp("full"), True), tmp_path_factory.mktemp("full-report")
    settings = ReportSettings(images=4, frozen_speakers=("mle", "luo"))
    inputs = {"crossed": world.crossed}
    write_report(world.sweep, world.evaluations, world.prepared, world.images, out, settings, inputs=inputs)
    return out


@pytest.fixture
def one_scene() -> Callable[[Any], None]:
    """Return a function that makes every image of a world a scene of two brown dogs, and all captions the same."""
    return _write_one_scene


def _write_one_scene(world: Any) -> None:
    box = (0.1, 0.5, 0.4, 0.8)
    dogs = Thing("dog", "brown", "plain", "medium", 2, "running", "ground", "left", (box, box), box)
    scene = Scene("farm", "clear", "night", 0.45, 0.45, {}, (dogs,))
    rows = pq.read_table(world.prepared / "images.parquet").to_pylist()
    (world.prepared / SCENE_FACTS).write_text(
        "".join(json.dumps({"imgid": int(row["id"]), **scene.record()}) + "\n" for row in rows)
    )
    for path in (world.sweep / "captions.parquet", *world.root.glob("evaluation/*/captions.parquet")):
        captions = [row | {"caption": "two red dogs and a cat on a farm"} for row in pq.read_table(path).to_pylist()]
        pq.write_table(pa.Table.from_pylist(captions), path)
