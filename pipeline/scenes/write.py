"""The data set on disk: pictures, captions in two common forms, and the facts that they are true of."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from pipeline.runtime.files import write_atomically
from pipeline.scenes.captions import Description, describe
from pipeline.scenes.dialogs.write import FILES as DIALOG_FILES
from pipeline.scenes.dialogs.write import write_dialogs
from pipeline.scenes.drawing.draw import draw_scene
from pipeline.scenes.facts import FACTS, Scene
from pipeline.scenes.form import all_drawn, check, coco_file, karpathy_file, replacing, splits_of, write_captions
from pipeline.scenes.sample import sample_scene

DATASET = "scenes"
KARPATHY, COCO = karpathy_file(DATASET), coco_file(DATASET)


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
    check(images, size, val, test, seed)
    with replacing(Path(root), {"images", KARPATHY, COCO, FACTS, *DIALOG_FILES}) as part:
        drawn = all_drawn(partial(_draw_one, part / "images", size, seed), images, workers)
        splits, files = splits_of(images, val, test), [file_name(i) for i in range(images)]
        counts = write_captions(part, DATASET, files, [captions for _, captions in drawn], splits, size)
        facts = ({"imgid": i, "filename": file_name(i), **scene.record()} for i, (scene, _) in enumerate(drawn))
        write_atomically(part / FACTS, "".join(json.dumps(fact) + "\n" for fact in facts))
        if dialogs:
            write_dialogs(part, drawn, splits, seed)
    return counts


def file_name(index: int) -> str:
    """Name of an image's file below `images/`."""
    return f"{index:06d}.jpg"


def _draw_one(folder: Path, size: int, seed: int, index: int) -> tuple[Scene, list[Description]]:
    scene = sample_scene(seed, index)
    # without chroma subsampling: at this size it would wash out the colours that captions name
    draw_scene(scene, seed, index, size).save(folder / file_name(index), "JPEG", quality=90, subsampling=0)
    return scene, describe(scene, seed, index)
