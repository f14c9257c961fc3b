"""The data set on disk: pictures, captions in two common forms, and the facts that they are true of."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.runtime.files import write_atomically
from pipeline.scenes.captions import Description, describe
from pipeline.scenes.drawing.draw import draw_scene
from pipeline.scenes.facts import FACTS, Scene, sample_scene

KARPATHY, COCO = "dataset_scenes.json", "captions_scenes.json"
CHUNK = 50  # images a worker draws before it reports


def draw(
    root: Path, images: int, size: int, val: int, test: int, seed: int, workers: int | None = None
) -> dict[str, int]:
    """Draw the data set below `root`, which is replaced as a whole at the very end or left as it was.

    Images 0 … test−1 are the test split, the next `val` the validation split, the rest is for training; each depends
    on its number and `seed` alone, so neither more images nor more workers (default: one a CPU) change any of them.
    Pictures are `size` × `size` pixels. Returns counts: images, train, val, test, captions, words.
    Raises UserError for impossible numbers, or if `root` holds something else than such a data set.
    """
    root = Path(root)
    _check(root, images, size, val, test, seed)
    root.parent.mkdir(parents=True, exist_ok=True)
    part = root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        (part / "images").mkdir(parents=True)
        drawn = list(_draw_all(part / "images", images, size, seed, workers or _processors()))
        splits = ["test"] * test + ["val"] * val + ["train"] * (images - test - val)
        karpathy, coco = karpathy_form(drawn, splits), coco_form(drawn, size)
        write_atomically(part / KARPATHY, json.dumps(karpathy) + "\n")
        write_atomically(part / COCO, json.dumps(coco) + "\n")
        write_atomically(
            part / FACTS, "".join(json.dumps(_facts(i, scene)) + "\n" for i, (scene, _) in enumerate(drawn))
        )
        _replace(root, part)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    words = {token for _, captions in drawn for caption in captions for token in caption.tokens}
    counts = {split: splits.count(split) for split in ("train", "val", "test")}
    return {"images": images, **counts, "captions": len(coco["annotations"]), "words": len(words)}


def _processors() -> int:
    """CPUs that this process may use; not every system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def file_name(index: int) -> str:
    """Name of an image's file below `images/`."""
    return f"{index:06d}.jpg"


def karpathy_form(drawn: list[tuple[Scene, list[Description]]], splits: list[str]) -> dict[str, Any]:
    """The split file in the form of Karpathy and Fei-Fei (2015), which most captioning code reads."""
    images, sentence = [], 0
    for i, ((_, captions), split) in enumerate(zip(drawn, splits, strict=True)):
        numbers = list(range(sentence, sentence + len(captions)))
        sentence += len(captions)
        sentences = [
            {"raw": caption.raw, "tokens": caption.tokens, "imgid": i, "sentid": number}
            for caption, number in zip(captions, numbers, strict=True)
        ]
        images.append(
            {
                "filename": file_name(i),
                "imgid": i,
                "cocoid": i,
                "split": split,
                "sentids": numbers,
                "sentences": sentences,
            }
        )
    return {"dataset": "scenes", "images": images}


def coco_form(drawn: list[tuple[Scene, list[Description]]], size: int) -> dict[str, Any]:
    """All captions in the form of COCO's annotation files."""
    images = [{"id": i, "file_name": file_name(i), "width": size, "height": size} for i in range(len(drawn))]
    pairs = [(i, caption) for i, (_, captions) in enumerate(drawn) for caption in captions]
    annotations = [{"id": n, "image_id": i, "caption": caption.raw} for n, (i, caption) in enumerate(pairs)]
    info = {"description": "scenes", "version": "1"}
    return {"info": info, "images": images, "annotations": annotations, "licenses": []}


def _facts(index: int, scene: Scene) -> dict[str, Any]:
    return {"imgid": index, "filename": file_name(index), **scene.record()}


def _draw_all(
    folder: Path, images: int, size: int, seed: int, workers: int
) -> Iterator[tuple[Scene, list[Description]]]:
    """Draw the pictures into `folder`, `CHUNK` at a time, and yield facts and captions in order."""
    chunks = [range(start, min(start + CHUNK, images)) for start in range(0, images, CHUNK)]
    work = partial(_draw_chunk, folder, size, seed)
    with tqdm(total=images, desc="draw", unit="image", disable=None) as bar:
        if workers == 1 or len(chunks) == 1:
            for chunk in chunks:
                yield from work(chunk)
                bar.update(len(chunk))
            return
        # spawn: a fork of a process that already runs threads may deadlock
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=context) as pool:
            for chunk, drawn in zip(chunks, pool.map(work, chunks), strict=True):
                yield from drawn
                bar.update(len(chunk))


def _draw_chunk(folder: Path, size: int, seed: int, chunk: range) -> list[tuple[Scene, list[Description]]]:
    drawn = []
    for i in chunk:
        scene = sample_scene(seed, i)
        # without chroma subsampling: at this size it would wash out the colours that captions name
        draw_scene(scene, seed, i, size).save(folder / file_name(i), "JPEG", quality=90, subsampling=0)
        drawn.append((scene, describe(scene, seed, i)))
    return drawn


def _check(root: Path, images: int, size: int, val: int, test: int, seed: int) -> None:
    if min(val, test, seed) < 0:
        raise UserError(f"draw: val, test and seed must not be negative, but are {val}, {test} and {seed}")
    if images <= val + test:
        raise UserError(
            f"draw: of {images} images none are left for training after val: {val} and test: {test}; draw more images"
        )
    if images > 1_000_000:
        raise UserError(f"draw: {images} images are more than six digits can number; draw at most 1000000")
    if not 32 <= size <= 1024:
        raise UserError(f"draw: pictures of size {size} cannot be drawn; choose 32 to 1024 pixels")
    ours = {"images", KARPATHY, COCO, FACTS}
    if root.exists() and not (root.is_dir() and {path.name for path in root.iterdir()} <= ours | {".gitignore"}):
        raise UserError(f"{root}: holds something else than a drawn data set and would be replaced; move it away first")


def _replace(root: Path, part: Path) -> None:
    """Put `part` in the place of `root`."""
    old = root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}.old")
    if root.exists():
        os.rename(root, old)
    os.rename(part, root)
    shutil.rmtree(old, ignore_errors=True)
