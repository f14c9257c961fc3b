"""The scene data set on disk: images, captions in two common formats, and the facts behind the captions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from pipeline.worlds.scenes.dataset_files import (
    DrawnDataset,
    assign_splits,
    draw_all,
    replace_folder,
    write_annotations,
)
from pipeline.worlds.scenes.drawing.draw_scene import draw_scene
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import SceneCaption, describe_scene
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene

SCENES = DrawnDataset("scenes", SCENE_FACTS, ".jpg")
DescribedScene = tuple[Scene, list[SceneCaption]]


def draw_scenes(
    root: Path,
    images: int,
    size: int,
    val: int,
    test: int,
    seed: int,
    workers: int | None = None,
    annotate: Callable[[Path, Sequence[DescribedScene], Sequence[str], int], object] | None = None,
    additional: Collection[str] = (),
) -> dict[str, int]:
    """Draw the data set into the folder `root`, which is replaced once all images are drawn.

    Images 0 … test−1 form the test split, the next `val` images form the validation split, and all others form the
    training split. Each image depends on its number, `seed` and `size` alone, not on the number of images or workers.
    By default, there is at most one worker per available core. Images are `size` × `size` pixels. `annotate` writes
    further files from the scenes with their captions, the splits and the seed; `additional` are these files' names.
    `DrawScenes` checks the numbers of images and their size. Returns counts: images, train, val, test, captions, words.
    Raises UserError if `root` holds other files than a data set of scenes.
    """
    with replace_folder(Path(root), SCENES, additional) as part:
        described_scenes = draw_all(partial(_write_scene, part / "images", size, seed), images, workers)
        captions = [sentences for _, sentences in described_scenes]
        facts = (scene.record() for scene, _ in described_scenes)
        splits = assign_splits(images, val, test)
        counts = write_annotations(part, SCENES, captions, facts, splits, size)
        if annotate is not None:
            annotate(part, described_scenes, splits, seed)
    return counts


def _write_scene(folder: Path, size: int, seed: int, index: int) -> DescribedScene:
    scene = sample_scene(seed, index)
    # no chroma subsampling: at this size it would blur the colours that captions name
    draw_scene(scene, seed, index, size).save(folder / SCENES.image_file(index), "JPEG", quality=90, subsampling=0)
    return scene, describe_scene(scene, seed, index)
