"""The scene data set on disk: images, captions in two common formats, and the facts behind the captions."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from pipeline.dialog.drawn.write_dialogs import FILES as DIALOG_FILES
from pipeline.dialog.drawn.write_dialogs import write_scene_dialogs
from pipeline.runtime.files import write_atomically
from pipeline.worlds.scenes.dataset_files import (
    check_sizes,
    coco_file,
    draw_all,
    karpathy_file,
    replace_folder,
    splits_of,
    write_captions,
)
from pipeline.worlds.scenes.drawing.draw_scene import draw_scene
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import SceneCaption, describe_scene
from pipeline.worlds.scenes.scene_facts import FACTS, Scene

DATASET = "scenes"
KARPATHY, COCO = karpathy_file(DATASET), coco_file(DATASET)


def draw_scenes(
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

    Images 0 … test−1 are the test split, the next `val` the validation split, the rest is for training. Each image
    depends on its number and `seed` alone, not on the number of images or workers (default: one per CPU). Images are
    `size` × `size` pixels. With `dialogs`, each image has a dialog. Returns counts: images, train, val, test, captions,
    words. Raises UserError for impossible numbers, or if `root` has files other than such a data set's.
    """
    check_sizes(images, size, val, test, seed)
    with replace_folder(Path(root), {"images", KARPATHY, COCO, FACTS, *DIALOG_FILES}) as part:
        drawn = draw_all(partial(_draw_one, part / "images", size, seed), images, workers)
        splits, files = splits_of(images, val, test), [scene_file_name(i) for i in range(images)]
        counts = write_captions(part, DATASET, files, [captions for _, captions in drawn], splits, size)
        facts = ({"imgid": i, "filename": scene_file_name(i), **scene.record()} for i, (scene, _) in enumerate(drawn))
        write_atomically(part / FACTS, "".join(json.dumps(fact) + "\n" for fact in facts))
        if dialogs:
            write_scene_dialogs(part, drawn, splits, seed)
    return counts


def scene_file_name(index: int) -> str:
    """Return the name of an image's file below `images/`."""
    return f"{index:06d}.jpg"


def _draw_one(folder: Path, size: int, seed: int, index: int) -> tuple[Scene, list[SceneCaption]]:
    scene = sample_scene(seed, index)
    # without chroma subsampling: at this size it would wash out the colours that captions name
    draw_scene(scene, seed, index, size).save(folder / scene_file_name(index), "JPEG", quality=90, subsampling=0)
    return scene, describe_scene(scene, seed, index)
