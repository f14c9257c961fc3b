"""Files of a drawn data set: captions in two common formats, and facts, in a folder that is replaced as a whole."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.runtime import signals
from pipeline.runtime.checksums import CHECKSUMS, write_checksums
from pipeline.runtime.cores import count_cores
from pipeline.runtime.files import write_atomically
from pipeline.runtime.folders import atomic_folder
from pipeline.runtime.locks import hold_lock
from pipeline.worlds.scenes.scene_captions import SceneCaption
from pipeline.worlds.scenes.scene_world import NEIGHBOURS

CHUNK = 6 * NEIGHBOURS  # images per worker process: at most ⌈images / CHUNK⌉ processes start
T = TypeVar("T")


@dataclass(frozen=True)
class DrawnDataset:
    """Kind of drawn data set: its name, the file of its facts, and the suffix of its images."""

    name: str
    facts: str
    suffix: str

    @property
    def karpathy(self) -> str:
        """Return the name of the split file."""
        return f"dataset_{self.name}.json"

    @property
    def coco(self) -> str:
        """Return the name of the annotation file."""
        return f"captions_{self.name}.json"

    def image_file(self, index: int) -> str:
        """Return the name of an image's file below `images/`."""
        return f"{index:06d}{self.suffix}"


@contextmanager
def replace_folder(root: Path, dataset: DrawnDataset, additional: Collection[str] = ()) -> Iterator[Path]:
    """Yield a folder with an empty folder `images`; at the end, add checksums and move this folder to `root`.

    `additional` are the names of additional files of the data set. Raises UserError if `root` or its folder `images`
    holds any other file, if `root` is a file, and where `atomic_folder` does.
    """
    allowed_names = {"images", dataset.karpathy, dataset.coco, dataset.facts, *additional, ".gitignore", CHECKSUMS}
    is_image = re.compile(rf"\d{{6}}{re.escape(dataset.suffix)}").fullmatch
    if root.exists() and not (
        root.is_dir()
        and {path.name for path in root.iterdir()} <= allowed_names
        and all(is_image(path.name) for path in (root / "images").glob("*"))
    ):
        raise UserError(f"{root}: is a file, or holds files other than a drawn data set's; move it away first")
    target = root.resolve()  # "." has no name
    with hold_lock(target.with_name(f".{target.name}.lock"), f"draw {root}"), atomic_folder(root) as part:
        (part / "images").mkdir()
        yield part
        write_checksums(part)


def draw_all(work: Callable[[int], T], images: int, workers: int | None) -> list[T]:
    """Return `work(i)` for each image number i, in order, computed by at most `workers` processes.

    With `workers` None, the limit is the number of cores. Up to CHUNK images are drawn without worker processes.
    """
    numbers, workers = range(images), workers or count_cores()
    bar = partial(tqdm, total=images, desc="draw", unit="image", disable=None)
    if workers == 1 or images <= CHUNK:
        return list(bar(map(work, numbers)))
    # spawn: a fork of a process with threads may deadlock
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, -(-images // CHUNK)), context, signals.end_with_parent)
    try:
        with signals.block_requests():  # pool.map starts the workers
            results = pool.map(work, numbers, chunksize=NEIGHBOURS)
        return list(bar(results))
    finally:  # a request to end waits for the running tasks only
        pool.shutdown(cancel_futures=True)


def write_annotations(
    part: Path,
    dataset: DrawnDataset,
    captions: Sequence[Sequence[SceneCaption]],
    facts: Iterable[Mapping[str, Any]],
    splits: list[str],
    size: int,
) -> dict[str, int]:
    """Write the captions in both formats, and the facts of each image.

    Returns counts: images, train, val, test, captions, words.
    """
    files = [dataset.image_file(i) for i in range(len(captions))]
    karpathy = format_karpathy(dataset.name, files, captions, splits)
    write_atomically(part / dataset.karpathy, json.dumps(karpathy) + "\n")
    write_atomically(part / dataset.coco, json.dumps(format_coco(dataset.name, files, captions, size)) + "\n")
    rows = ({"imgid": i, "filename": file, **fact} for i, (file, fact) in enumerate(zip(files, facts, strict=True)))
    write_atomically(part / dataset.facts, "".join(json.dumps(row) + "\n" for row in rows))
    all_captions = [caption for image_captions in captions for caption in image_captions]
    words = {token for caption in all_captions for token in caption.tokens}
    counts = {split: splits.count(split) for split in ("train", "val", "test")}
    return {"images": len(files), **counts, "captions": len(all_captions), "words": len(words)}


def assign_splits(images: int, val: int, test: int) -> list[str]:
    """Return the split of each image: first the test split, then the validation split, then the training split."""
    return ["test"] * test + ["val"] * val + ["train"] * (images - test - val)


def format_karpathy(
    dataset: str, files: Sequence[str], captions: Sequence[Sequence[SceneCaption]], splits: list[str]
) -> dict[str, Any]:
    """Return the split file in the format of Karpathy and Fei-Fei (2015), which most captioning code reads."""
    images, number = [], count()
    for i, (name, image_captions, split) in enumerate(zip(files, captions, splits, strict=True)):
        sentences = [
            {"raw": caption.raw, "tokens": caption.tokens, "imgid": i, "sentid": next(number)}
            for caption in image_captions
        ]
        image = {"filename": name, "imgid": i, "cocoid": i, "split": split}
        images.append({**image, "sentids": [sentence["sentid"] for sentence in sentences], "sentences": sentences})
    return {"dataset": dataset, "images": images}


def format_coco(
    dataset: str, files: Sequence[str], captions: Sequence[Sequence[SceneCaption]], size: int
) -> dict[str, Any]:
    """Return all captions in the format of COCO's annotation files."""
    images = [{"id": i, "file_name": name, "width": size, "height": size} for i, name in enumerate(files)]
    pairs = [(i, caption) for i, image_captions in enumerate(captions) for caption in image_captions]
    annotations = [{"id": n, "image_id": i, "caption": caption.raw} for n, (i, caption) in enumerate(pairs)]
    info = {"description": dataset, "version": "2"}
    return {"info": info, "images": images, "annotations": annotations, "licenses": []}
