"""The benchmark on disk: a folder of pictures for the captioner, and a key file outside it with the facts.

The folder has images/NNNN.png and images.parquet: the file, gallery and SHA-256 of each picture. The key has the seed,
the difficulty, the facts of every picture, and the SHA-256 of images.parquet.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.errors import UserError, summarise_error
from pipeline.readers.table_files import read_texts
from pipeline.runtime.files import compute_sha256, write_checked
from pipeline.runtime.records import parse_json, read_bytes
from pipeline.runtime.untrusted import resolve_inside
from pipeline.worlds.scene_baselines import sample_oracle_caption
from pipeline.worlds.scenes.dataset_files import draw_all
from pipeline.worlds.scenes.drawing.draw_scene import draw_scene
from pipeline.worlds.scenes.faithfulness import judge_faithfulness
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_facts import Scene, make_generator
from pipeline.worlds.scenes.scene_world import NEIGHBOURS
from saywhich.drawn_benchmark.benchmark_galleries import DIFFICULTIES, sample_galleries

FORMAT = "saywhich drawn benchmark 1"
INDEX, IMAGES = "images.parquet", "images"
REMEDY = "make the benchmark again"
MIN_IMAGES, MAX_IMAGES = 16, 8000  # pictures
SIZE = 256  # pixels
MAX_KEY_BYTES = 2**28  # bytes
SHUFFLE_STREAM = 3  # `purpose` of the random numbers that shuffle the pictures
SEED_LIMIT = 2**63


@dataclass(frozen=True)
class DrawnBenchmark:
    """M pictures of a benchmark, as its key lists them: their files, gallery numbers and scenes."""

    difficulty: int
    files: Sequence[str]
    galleries: Sequence[int]
    scenes: Sequence[Scene]


def make_benchmark(
    folder: Path, key: Path, seed: int, images: int = 800, difficulty: int = 3, workers: int | None = None
) -> None:
    """Draw a benchmark into `folder`, and write its `key`; their content depends on seed, images and difficulty alone.

    Raises UserError for numbers out of range, and where `folder` or `key` exists or one would lie in the other.
    """
    if difficulty not in DIFFICULTIES:
        raise UserError(f"--difficulty {difficulty}: give 1, 2, 3 or 4")
    if images % NEIGHBOURS or not MIN_IMAGES <= images <= MAX_IMAGES:
        raise UserError(f"--images {images}: give a multiple of {NEIGHBOURS} from {MIN_IMAGES} to {MAX_IMAGES}")
    if not 0 <= seed < SEED_LIMIT:
        raise UserError("--secret: give a whole number from 0 to 2^63 − 1")
    for path in (folder, key):
        if path.exists():
            raise UserError(f"{path}: exists; move it away, or give another name")
    if folder.resolve() in key.resolve().parents:
        raise UserError(f"{key}: the key would lie in the folder that the captioner gets; give another --key")
    if key.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise UserError(f"{key}: the key would be the folder of the pictures, or one above it; give another --key")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        (temporary / IMAGES).mkdir(parents=True)
        scene_numbers = [scene for gallery in sample_galleries(seed, images // NEIGHBOURS, difficulty, workers)
                         for scene in gallery]  # fmt: skip
        picture_numbers = make_generator(seed, 0, SHUFFLE_STREAM).permutation(images).tolist()
        files = [f"{IMAGES}/{number:04d}.png" for number in picture_numbers]
        draw_row = partial(_draw_picture, temporary, seed, dict(enumerate(zip(scene_numbers, files, strict=True))))
        scenes = draw_all(draw_row, images, workers)
        order = sorted(range(images), key=lambda row: picture_numbers[row])
        _write_index(temporary, [files[row] for row in order], [row // NEIGHBOURS for row in order])
        record = {
            "format": FORMAT,
            "seed": seed,
            "difficulty": difficulty,
            "index": compute_sha256(temporary / INDEX),
            "scenes": [
                {"file": files[row], "gallery": row // NEIGHBOURS, **scenes[row].record(), "neighbourhood": -1}
                for row in order
            ],
        }
        os.rename(temporary, folder)  # fails where another process has put files there
        try:
            write_checked(key, json.dumps(record).encode())
        finally:
            if not key.exists():
                shutil.rmtree(folder, ignore_errors=True)  # pictures cannot be scored without their facts
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_benchmark(folder: Path, key: Path) -> DrawnBenchmark:
    """Read a benchmark and check it against its key.

    Raises UserError where the key is missing, damaged or of another benchmark.
    Raises UserError where the index or a picture is missing or has changed.
    """
    content = read_bytes(key, "give the key that `saywhich bench make` wrote, by --key", MAX_KEY_BYTES)
    checksum, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise UserError(
            f"{key}: expected the bytes that `saywhich bench make` wrote, found others; restore the key, or {REMEDY}"
        )
    record = parse_json(body, str(key), REMEDY)
    if not isinstance(record, Mapping) or record.get("format") != FORMAT:
        raise UserError(f"{key}: expected a key of the form {FORMAT!r}, found another; {REMEDY}")
    index = folder / INDEX
    if not index.is_file() or compute_sha256(index) != record.get("index"):
        raise UserError(
            f"{index}: is missing, or not the index of the benchmark of {key}; give that benchmark's folder"
        )
    for _, row in read_texts(index, ("file", "sha256"), ("file", "sha256")):
        path = resolve_inside(folder, row["file"])
        if not path.is_file() or compute_sha256(path) != row["sha256"]:
            raise UserError(f"{path}: is missing, or not the picture that was drawn; copy the benchmark's folder again")
    try:
        return _build_benchmark(record)
    except Exception as error:  # facts of another form can raise any exception
        raise UserError(f"{key}: its facts do not describe drawn scenes ({summarise_error(error)}); {REMEDY}") from None


def _build_benchmark(record: Mapping[str, Any]) -> DrawnBenchmark:
    """Return the benchmark of a key; raises any exception where a caption cannot be written or judged by its facts."""
    scenes = [Scene.from_record(scene) for scene in record["scenes"]]
    files, galleries = ([scene[name] for scene in record["scenes"]] for name in ("file", "gallery"))
    if not all(isinstance(each, str) for each in files) or len(set(files)) < len(files):
        raise TypeError("a file name is no text, or is repeated")
    if not all(isinstance(each, int) for each in (*galleries, record["difficulty"])):
        raise TypeError("a gallery or the difficulty is no whole number")
    judge_faithfulness([sample_oracle_caption(scene, row) for row, scene in enumerate(scenes)], scenes)
    return DrawnBenchmark(record["difficulty"], files, galleries, scenes)


def _draw_picture(folder: Path, seed: int, pictures: Mapping[int, tuple[int, str]], row: int) -> Scene:
    """Draw a row's picture into `folder`, and return its scene; `pictures` has each row's scene number and file."""
    number, file = pictures[row]
    scene = sample_scene(seed, number)
    draw_scene(scene, seed, number, SIZE).save(folder / file, "PNG")
    return scene


def _write_index(folder: Path, files: Sequence[str], galleries: Sequence[int]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "file": files,
        "gallery": galleries,
        "sha256": [compute_sha256(folder / file) for file in files],
    }
    pq.write_table(pa.table(columns), folder / INDEX)
