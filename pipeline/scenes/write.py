"""The data set on disk: pictures, captions in two common forms, and the facts that they are true of."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import uuid
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.runtime.files import write_atomically
from pipeline.runtime.locks import alone
from pipeline.scenes.captions import Description, describe
from pipeline.scenes.dialogs.write import FILES as DIALOG_FILES
from pipeline.scenes.dialogs.write import write_dialogs
from pipeline.scenes.drawing.draw import draw_scene
from pipeline.scenes.facts import FACTS, Scene
from pipeline.scenes.sample import sample_scene
from pipeline.scenes.world import NEIGHBOURS

KARPATHY, COCO = "dataset_scenes.json", "captions_scenes.json"
CHUNK = 6 * NEIGHBOURS  # images that a worker draws at a time
Drawn = list[tuple[Scene, list[Description]]]


def draw(
    root: Path,
    images: int,
    size: int,
    val: int,
    test: int,
    seed: int,
    workers: int | None = None,
    dialogs: bool = False,
) -> dict[str, int]:
    """Draw the data set into the folder `root`, which is replaced only when all is drawn.

    Images 0 … test−1 are the test split, the next `val` the validation split, the rest is for training; each depends
    on its number and `seed` alone, not on the number of images or workers (default: one per CPU). Pictures are `size` ×
    `size` pixels. With `dialogs` there is one about each of them. Returns counts: images, train, val, test, captions,
    words. Raises UserError for impossible numbers, or if `root` has other files than such a data set.
    """
    root = Path(root)
    _check(root, images, size, val, test, seed)
    root.parent.mkdir(parents=True, exist_ok=True)
    with alone(root.with_name(f".{root.name}.lock"), f"draw {root}"):
        for left in chain(root.parent.glob(f".{root.name}.*.part"), root.parent.glob(f".{root.name}.*.old")):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
        return _draw(root, images, size, val, test, seed, workers, dialogs)


def _draw(
    root: Path, images: int, size: int, val: int, test: int, seed: int, workers: int | None, dialogs: bool
) -> dict[str, int]:
    part = root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        (part / "images").mkdir(parents=True)
        drawn = _draw_all(part / "images", images, size, seed, workers or _processors())
        splits = ["test"] * test + ["val"] * val + ["train"] * (images - test - val)
        write_atomically(part / KARPATHY, json.dumps(karpathy_form(drawn, splits)) + "\n")
        write_atomically(part / COCO, json.dumps(coco_form(drawn, size)) + "\n")
        facts = ({"imgid": i, "filename": file_name(i), **scene.record()} for i, (scene, _) in enumerate(drawn))
        write_atomically(part / FACTS, "".join(json.dumps(fact) + "\n" for fact in facts))
        if dialogs:
            write_dialogs(part, drawn, splits, seed)
        _replace(root, part)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    captions = [caption for _, described in drawn for caption in described]
    words = {token for caption in captions for token in caption.tokens}
    counts = {split: splits.count(split) for split in ("train", "val", "test")}
    return {"images": images, **counts, "captions": len(captions), "words": len(words)}


def _processors() -> int:
    """CPUs that this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def file_name(index: int) -> str:
    """Name of an image's file below `images/`."""
    return f"{index:06d}.jpg"


def karpathy_form(drawn: Drawn, splits: list[str]) -> dict[str, Any]:
    """The split file in the form of Karpathy and Fei-Fei (2015), which most captioning code reads."""
    images, number = [], count()
    for i, ((_, captions), split) in enumerate(zip(drawn, splits, strict=True)):
        sentences = [
            {"raw": caption.raw, "tokens": caption.tokens, "imgid": i, "sentid": next(number)} for caption in captions
        ]
        image = {"filename": file_name(i), "imgid": i, "cocoid": i, "split": split}
        images.append({**image, "sentids": [each["sentid"] for each in sentences], "sentences": sentences})
    return {"dataset": "scenes", "images": images}


def coco_form(drawn: Drawn, size: int) -> dict[str, Any]:
    """All captions in the form of COCO's annotation files."""
    images = [{"id": i, "file_name": file_name(i), "width": size, "height": size} for i in range(len(drawn))]
    pairs = [(i, caption) for i, (_, captions) in enumerate(drawn) for caption in captions]
    annotations = [{"id": n, "image_id": i, "caption": caption.raw} for n, (i, caption) in enumerate(pairs)]
    info = {"description": "scenes", "version": "2"}
    return {"info": info, "images": images, "annotations": annotations, "licenses": []}


def _draw_all(folder: Path, images: int, size: int, seed: int, workers: int) -> Drawn:
    """Draw the pictures into `folder`; returns facts and captions in order."""
    work, numbers = partial(_draw_one, folder, size, seed), range(images)
    bar = partial(tqdm, total=images, desc="draw", unit="image", disable=None)
    if workers == 1 or images <= CHUNK:
        return list(bar(map(work, numbers)))
    # spawn: a fork of a process that already runs threads may deadlock
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, -(-images // CHUNK)), mp_context=context) as pool:
        return list(bar(pool.map(work, numbers, chunksize=CHUNK)))


def _draw_one(folder: Path, size: int, seed: int, index: int) -> tuple[Scene, list[Description]]:
    scene = sample_scene(seed, index)
    # without chroma subsampling: at this size it would wash out the colours that captions name
    draw_scene(scene, seed, index, size).save(folder / file_name(index), "JPEG", quality=90, subsampling=0)
    return scene, describe(scene, seed, index)


def _check(root: Path, images: int, size: int, val: int, test: int, seed: int) -> None:
    if min(val, test, seed) < 0:
        raise UserError(f"draw: val, test and seed must not be negative, but are {val}, {test} and {seed}")
    if val % NEIGHBOURS or test % NEIGHBOURS:
        raise UserError(
            f"draw: val: {val} and test: {test} would divide a neighbourhood of {NEIGHBOURS} scenes; "
            f"choose multiples of {NEIGHBOURS}"
        )
    if images <= val + test:
        raise UserError(
            f"draw: of {images} images none are left for training after val: {val} and test: {test}; draw more images"
        )
    if images > 1_000_000:
        raise UserError(f"draw: {images} images are more than six digits can number; draw at most 1000000")
    if not 32 <= size <= 1024:
        raise UserError(f"draw: pictures of size {size} cannot be drawn; choose 32 to 1024 pixels")
    ours = {"images", KARPATHY, COCO, FACTS, *DIALOG_FILES}
    if root.exists() and not (root.is_dir() and {path.name for path in root.iterdir()} <= ours | {".gitignore"}):
        raise UserError(f"{root}: holds something else than a drawn data set and would be replaced; move it away first")


def _replace(root: Path, part: Path) -> None:
    """Put `part` in the place of `root`."""
    old = root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}.old")
    if root.exists():
        os.rename(root, old)
    os.rename(part, root)
    shutil.rmtree(old, ignore_errors=True)
