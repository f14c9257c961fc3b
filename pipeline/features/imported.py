"""Features that were extracted elsewhere, read image by image into the store.

Three published forms: folders of NumPy files as self-critical.pytorch has them (`cocotalk_fc`, `cocotalk_att`,
`cocobu_att`), the TSV files of bottom-up-attention, and `coco_detections.hdf5` of meshed-memory-transformer. Nothing in
them is unpickled, and of all images only a few are in memory at a time.
"""

from __future__ import annotations

import binascii
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.runtime.files import sha256

if TYPE_CHECKING:
    from pipeline.features.extract import Writer

AT_ONCE = 64  # images
COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
FIRST = "the first of each image, in the order of its file"
CONFIDENT = "the most confident of each image, in the order of the file"
Digests = dict[str, str]  # name of a source → SHA-256


@dataclass(frozen=True, slots=True)
class Found:
    """What a file says of the image in row `row`."""

    row: int
    file: str
    regions: np.ndarray  # (n, D)
    pooled: np.ndarray  # (P,)
    boxes: np.ndarray | None = None  # (n, 4): x1, y1, x2, y2 as shares of width and height
    confidence: np.ndarray | None = None  # (n,)


def import_features(
    ids: Sequence[str],
    out: Path,
    writer: Callable[[Path, int, int, tuple[int, int], bool], Writer],
    *,
    form: str,
    regions: str | Sequence[str],
    regions_kept: int,
    pooled: str | None = None,
) -> None:
    """Write the features of the images `ids` into the folder `out`.

    `form` is npy_folders (`regions`: a folder of ID.npz, key `feat`, or ID.npy; (n, D), or a grid (H, W, D)), tsv (one
    file or several), or detections (an HDF5 file of `ID_features` (n, D)). Of more than `regions_kept` regions the most
    confident are kept where the file tells (`ID_cls_prob`), else the first. `pooled` is a folder of ID.npy (P,);
    without it the vector is the mean of all regions of an image. Of tsv the regions' boxes are kept too; those of
    detections (`ID_boxes`) are not: they are in pixels, and the file does not tell how many an image has. `writer`
    opens the store, (folder, M, P, (R, D), with boxes). Raises UserError, one line with image and file, for what is
    missing, damaged or of another size than the rest.
    """
    places = [Path(regions)] if isinstance(regions, str) else [Path(file) for file in regions]
    sources: dict[str, Digests] = {"regions": {}}
    vectors = None
    if pooled is not None:
        sources["pooled"] = {}
        vectors = _Folder(Path(pooled), sources["pooled"])
    if form == "tsv":
        found = _of_tsv(ids, places, vectors, sources["regions"])
    elif form == "detections":
        found = _of_detections(ids, places[0], vectors, sources["regions"])
    else:
        found = _of_folders(ids, _Folder(places[0], sources["regions"]), vectors, regions_kept)
    first = next(found)
    size, length = first.regions.shape[1], len(first.pooled)
    found, cut, which = chain([first], found), 0, FIRST
    with (
        writer(out, len(ids), length, (regions_kept, size), first.boxes is not None) as store,
        tqdm(total=len(ids), desc="images", unit="", disable=None) as bar,
    ):
        while some := sorted(islice(found, AT_ONCE), key=lambda image: image.row):
            kept = np.zeros((len(some), regions_kept, size), np.float32)
            boxes = np.zeros((len(some), regions_kept, 4), np.float32)
            for i, image in enumerate(some):
                if image.regions.shape[1] != size or len(image.pooled) != length:
                    raise UserError(
                        f"{image.file}: image {ids[image.row]} has regions of {image.regions.shape[1]} and a vector of "
                        f"{len(image.pooled)} numbers, but image {ids[first.row]} of {size} and {length}"
                    )
                chosen = np.arange(min(len(image.regions), regions_kept))
                if len(image.regions) > regions_kept:
                    cut += 1
                    if image.confidence is not None:
                        which = CONFIDENT
                        chosen = np.sort(np.argsort(-image.confidence, kind="stable")[:regions_kept])
                kept[i, : len(chosen)] = image.regions[chosen]
                if image.boxes is not None:
                    boxes[i, : len(chosen)] = image.boxes[chosen]
            store.write(
                np.array([image.row for image in some]),
                np.stack([image.pooled for image in some]),
                kept,
                np.array([min(len(image.regions), regions_kept) for image in some]),
                boxes if first.boxes is not None else None,
            )
            bar.update(len(some))
        store.manifest.update(
            network="imported",
            form=form,
            sources={part: _described(digests) for part, digests in sources.items()},
            pooled="the mean of an image's regions" if pooled is None else "as imported",
            regions_kept={"most": regions_kept, "which": which, "images_with_more": cut},
        )


def _of_folders(ids: Sequence[str], regions: _Folder, vectors: _Folder | None, kept: int) -> Iterator[Found]:
    def read(row: int) -> Found:
        features, file = regions.read(ids[row])
        if features.ndim == 3:  # a grid, which is not cut: its first cells are the image's upper edge
            if features.shape[0] * features.shape[1] > kept:
                raise UserError(
                    f"{file}: a grid of {features.shape[0]}×{features.shape[1]} cells; set regions_kept to "
                    f"{features.shape[0] * features.shape[1]}"
                )
            features = features.reshape(-1, features.shape[2])
        return _found(row, ids[row], str(file), features, vectors)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(ids), AT_ONCE):
            yield from pool.map(read, range(start, min(start + AT_ONCE, len(ids))))


def _of_tsv(ids: Sequence[str], files: Sequence[Path], vectors: _Folder | None, digests: Digests) -> Iterator[Found]:
    """The first whole line of each image; in the published files some images stand twice, once damaged."""
    rows = {id_.encode(): row for row, id_ in enumerate(ids)}
    read = np.zeros(len(ids), bool)
    damaged: dict[int, str] = {}
    for file in files:
        digest = hashlib.sha256()
        try:
            with open(file, "rb") as lines:
                for number, line in enumerate(lines, 1):
                    digest.update(line)
                    row = rows.get(line[: line.find(b"\t")])
                    if row is None or read[row]:
                        continue
                    try:
                        features, boxes = _line(line)
                    except ValueError as error:
                        damaged.setdefault(row, f"{file}, line {number}: image {ids[row]} cannot be read ({error})")
                        continue
                    read[row] = True
                    yield _found(row, ids[row], f"{file}, line {number}", features, vectors, boxes)
        except OSError as error:
            raise UserError(f"{file}: the TSV file cannot be read ({error.strerror})") from None
        digests[str(file)] = digest.hexdigest()
    if not read.all():
        row = int(np.argmin(read))
        raise UserError(damaged.get(row, f"{', '.join(map(str, files))}: no line of image {ids[row]}"))


def _line(line: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Regions (n, D) of a line, and boxes (n, 4) as shares of the image's sides. ValueError where it is not whole."""
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} columns instead of {', '.join(COLUMNS)}")
    width, height, count = map(int, fields[1:4])
    boxes, features = (np.frombuffer(binascii.a2b_base64(text, strict_mode=True), "<f4") for text in fields[4:])
    if count < 1 or len(boxes) != 4 * count or len(features) == 0 or len(features) % count:
        raise ValueError(f"{len(boxes)} numbers of boxes and {len(features)} of features are not of {count} boxes")
    sides, boxes = np.array([width, height] * 2, np.float32), boxes.reshape(count, 4)
    within = np.all((boxes >= -1) & (boxes <= sides + 1))  # a pixel beyond the edge may be rounding
    if not within or min(width, height) < 1 or np.any(boxes[:, :2] > boxes[:, 2:]):
        raise ValueError(f"boxes that are not x1, y1, x2, y2 within {width}×{height} pixels")
    return features.reshape(count, -1), np.clip(boxes / sides, 0, 1)


def _of_detections(ids: Sequence[str], file: Path, vectors: _Folder | None, digests: Digests) -> Iterator[Found]:
    import h5py

    try:
        opened = h5py.File(file, "r")
    except OSError as error:
        reason = "there is none" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise UserError(f"{file}: the HDF5 file of detections cannot be read ({reason})") from None
    with opened:
        for row, id_ in enumerate(ids):
            try:
                features = opened[f"{id_}_features"][()]
                # the first class is the background; a region's best other class says how sure its detector is
                likely = opened[f"{id_}_cls_prob"][:, 1:].max(axis=1) if f"{id_}_cls_prob" in opened else None
            except KeyError:
                raise UserError(f"{file}: no data set {id_}_features: image {id_} has no features there") from None
            except (OSError, ValueError, TypeError, AttributeError) as error:
                reason = str(error).splitlines()[0]
                raise UserError(f"{file}: the features of image {id_} cannot be read ({reason})") from None
            if likely is not None and len(likely) != len(features):
                raise UserError(f"{file}: image {id_} has {len(features)} regions, but {len(likely)} in {id_}_cls_prob")
            yield _found(row, id_, str(file), features, vectors, confidence=likely)
    digests[str(file)] = sha256(file)


def _found(
    row: int,
    id_: str,
    file: str,
    regions: np.ndarray,
    vectors: _Folder | None,
    boxes: np.ndarray | None = None,
    confidence: np.ndarray | None = None,
) -> Found:
    if regions.ndim != 2 or 0 in regions.shape or regions.dtype.kind != "f":
        raise UserError(
            f"{file}: image {id_} has features {regions.shape} {regions.dtype}, which are to be (n, D) numbers"
        )
    if vectors is None:
        return Found(row, file, regions, regions.mean(0, np.float32), boxes, confidence)
    pooled, place = vectors.read(id_)
    if pooled.ndim != 1 or pooled.dtype.kind != "f":
        raise UserError(f"{place}: image {id_} has a vector {pooled.shape} {pooled.dtype}, which is to be (P,) numbers")
    return Found(row, file, regions, pooled, boxes, confidence)


class _Folder:
    """A folder of ID.npz, key `feat`, or ID.npy; what was read is in `digests`, by name."""

    def __init__(self, folder: Path, digests: Digests):
        self.folder, self.digests = folder, digests

    def read(self, id_: str) -> tuple[np.ndarray, Path]:
        """The features of image `id_`, and their file."""
        for ending in ("npz", "npy"):
            file = self.folder / f"{id_}.{ending}"
            try:
                content = file.read_bytes()
                self.digests[file.name] = hashlib.sha256(content).hexdigest()
                loaded = np.load(io.BytesIO(content), allow_pickle=False)
                return (loaded if isinstance(loaded, np.ndarray) else loaded["feat"]), file
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                reason = " ".join(str(error).split())
                raise UserError(f"{file}: the features of image {id_} cannot be read ({reason})") from None
        raise UserError(f"{self.folder}: image {id_} has neither {id_}.npz nor {id_}.npy there")


def _described(digests: Digests) -> dict[str, object]:
    """One digest of all files: that of their names and digests, in the order of names."""
    if len(digests) == 1:
        [(name, digest)] = digests.items()
        return {"file": name, "sha256": digest}
    listed = json.dumps(digests, sort_keys=True)
    return {"files": len(digests), "sha256": hashlib.sha256(listed.encode()).hexdigest()}
