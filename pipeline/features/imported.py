"""Import of features extracted elsewhere, written into the store in batches of BATCH images.

Three published formats are read: folders of NumPy files as in self-critical.pytorch (`cocotalk_fc`, `cocotalk_att`,
`cocobu_att`), the TSV files of bottom-up-attention, and `coco_detections.hdf5` of meshed-memory-transformer. Nothing in
them is unpickled, and only a few batches are in memory at a time.
"""

from __future__ import annotations

import binascii
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from pipeline.corpora.archives import UNREADABLE
from pipeline.data.feature_store import FeatureWriter
from pipeline.errors import UserError, summarise_error
from pipeline.runtime.cores import count_cores
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.untrusted import MAX_ARRAY_BYTES, read_dataset, read_npy, require_plain_file, resolve_inside

BATCH = 64  # images
COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
FIRST = "the first of each image, in the order of its file"
CONFIDENT = "the most confident of each image, in the order of the file"
PARSING = threading.Lock()  # for NumPy's headers: before Python 3.12, Python's parser may raise SystemError in threads
Digests = dict[str, str]  # name of a source → SHA-256


class ImportedRow(NamedTuple):
    """Features of the image in row `row` of the data set, read from `file`."""

    row: int
    file: str
    regions: np.ndarray  # (n, D), or a grid (H, W, D)
    boxes: np.ndarray | None = None  # (n, 4): x1, y1, x2, y2 as shares of width and height
    confidence: np.ndarray | None = None  # (n,)


@dataclass(frozen=True)
class FeatureFormat:
    """Format of imported features: its name in `imported.format`, the paths that it takes, and its reader.

    `read(ids, paths, digests)` yields the features of the images `ids`, and adds the SHA-256 of each file that it reads
    to `digests`. `fits` returns whether `imported.regions` has such paths.
    """

    name: str
    accepted_settings: str
    read: Callable[[Sequence[str], Sequence[Path], Digests], Generator[ImportedRow, None, None]]
    fits: Callable[[str | Sequence[str]], bool] = lambda regions: isinstance(regions, str)


def import_features(
    ids: Sequence[str],
    out: Path,
    *,
    feature_format: FeatureFormat,
    regions: str | Sequence[str],
    max_regions: int,
    pooled: str | None = None,
) -> None:
    """Write the features of the images `ids` into the folder `out`.

    An image with more than `max_regions` regions keeps the most confident regions where the file has confidences
    (`ID_cls_prob`), else the first regions. `pooled` is a folder of ID.npz or ID.npy (P,); without it the vector is the
    mean of an image's regions. The boxes of detections (`ID_boxes`) are not imported: they are in pixels, and the file
    does not state the images' sizes. Raises UserError, with image and file, for features that are missing, damaged or
    of another size than the features of the first image. Raises UserError, too, for features that are not finite in
    half precision, and for a grid of more than `max_regions` cells.
    """
    paths = [Path(regions)] if isinstance(regions, str) else [Path(file) for file in regions]
    sources: dict[str, Digests] = {"regions": {}}
    # the threads end with this block, also after an error
    with closing(feature_format.read(ids, paths, sources["regions"])) as entries:
        vectors = None
        if pooled is not None:
            sources["pooled"] = {}
            vectors = _NumpyFolder(Path(pooled), sources["pooled"])
        pairs = (_check_row(image, ids[image.row], vectors, max_regions) for image in entries)
        first, vector = next(pairs)
        size, length = first.regions.shape[1], len(vector)
        images, truncated, selection = chain([(first, vector)], pairs), 0, FIRST
        with (
            FeatureWriter(out, len(ids), length, (max_regions, size), first.boxes is not None, False) as store,
            tqdm(total=len(ids), desc="images", unit="", disable=None) as bar,
        ):
            while batch := sorted(islice(images, BATCH), key=lambda pair: pair[0].row):
                batch_regions = np.zeros((len(batch), max_regions, size), np.float32)
                boxes = None if first.boxes is None else np.zeros((len(batch), max_regions, 4), np.float32)
                for i, (image, vector) in enumerate(batch):
                    if image.regions.shape[1] != size or len(vector) != length:
                        raise UserError(
                            f"{image.file}: image {ids[image.row]} has regions of {image.regions.shape[1]} and a "
                            f"vector of {len(vector)} numbers, but image {ids[first.row]} has {size} and {length}; "
                            "extract all features with the same network"
                        )
                    indices = np.arange(min(len(image.regions), max_regions))
                    if len(image.regions) > max_regions:
                        truncated += 1
                        if image.confidence is not None:
                            selection = CONFIDENT
                            indices = np.sort(np.argsort(-image.confidence, kind="stable")[:max_regions])
                    with np.errstate(over="ignore"):  # overflow is reported here
                        batch_regions[i, : len(indices)] = image.regions[indices]
                        finite = all(
                            np.isfinite(values.astype(np.float16)).all() for values in (batch_regions[i], vector)
                        )
                    if not finite:
                        raise UserError(
                            f"{image.file}: image {ids[image.row]} has a feature or vector that is infinite or NaN in "
                            "half precision (beyond ±65,504); extract its features again"
                        )
                    if boxes is not None and image.boxes is not None:
                        boxes[i, : len(indices)] = image.boxes[indices]
                store.write(
                    np.array([image.row for image, _ in batch]),
                    np.stack([vector for _, vector in batch]),
                    batch_regions,
                    np.array([min(len(image.regions), max_regions) for image, _ in batch]),
                    boxes,
                )
                bar.update(len(batch))
            store.manifest.update(
                network="imported",
                form=feature_format.name,
                sources={part: _describe_sources(digests) for part, digests in sources.items()},
                pooled="the mean of an image's regions" if pooled is None else "as imported",
                regions_kept={"most": max_regions, "which": selection, "images_with_more": truncated},
            )


def _check_row(
    image: ImportedRow, id_: str, vectors: _NumpyFolder | None, max_regions: int
) -> tuple[ImportedRow, np.ndarray]:
    """Return the image with regions (n, D), and its vector (P,).

    Raises UserError for a grid of more than `max_regions` cells: its first cells would be the upper edge only. Raises
    UserError, too, for arrays of another shape or type.
    """
    regions = image.regions
    if regions.ndim == 3 and regions.size:
        cells = regions.shape[0] * regions.shape[1]
        if cells > max_regions:
            raise UserError(
                f"{image.file}: expected at most {max_regions} regions, found a grid of {regions.shape[0]}×"
                f"{regions.shape[1]} cells; set imported.max_regions to {cells}"
            )
        regions = regions.reshape(cells, -1)
    _require_numbers(regions, 2, f"{image.file}: image {id_} has features", "(n, D)")
    if vectors is None:
        return image._replace(regions=regions), regions.mean(0, np.float32)
    vector, file = vectors.read(id_)
    _require_numbers(vector, 1, f"{file}: image {id_} has a vector", "(P,)")
    return image._replace(regions=regions), vector


def _require_numbers(values: np.ndarray, dimensions: int, subject: str, expected: str) -> None:
    if values.ndim != dimensions or 0 in values.shape or values.dtype.kind != "f":
        raise UserError(
            f"{subject} {values.shape} {values.dtype}, but {expected} floating-point numbers are needed; extract them "
            "again"
        )


def _read_folders(ids: Sequence[str], folders: Sequence[Path], digests: Digests) -> Generator[ImportedRow, None, None]:
    folder = _NumpyFolder(folders[0], digests)
    with ThreadPoolExecutor(count_cores()) as pool:
        for start in range(0, len(ids), BATCH):
            for row, (features, file) in enumerate(pool.map(folder.read, ids[start : start + BATCH]), start):
                yield ImportedRow(row, str(file), features)


def _read_tsv(ids: Sequence[str], files: Sequence[Path], digests: Digests) -> Generator[ImportedRow, None, None]:
    """Yield the features of each image from its first undamaged line.

    In the published files, some images have two lines, one of them damaged. Raises UserError for an unreadable file, an
    overlong line, and an image without an undamaged line.
    """
    rows = {id_.encode(): row for row, id_ in enumerate(ids)}
    is_read = np.zeros(len(ids), bool)
    damaged: dict[int, str] = {}
    for file in files:
        digest = hashlib.sha256()
        try:
            with open(require_plain_file(file), "rb") as lines:
                for number, line in enumerate(iter(lambda: lines.readline(MAX_ARRAY_BYTES), b""), 1):
                    digest.update(line)
                    if len(line) == MAX_ARRAY_BYTES:
                        raise UserError(
                            f"{file}, line {number}: longer than {MAX_ARRAY_BYTES:,} bytes; name a TSV file of features"
                        )
                    row = rows.get(line[: line.find(b"\t")])
                    if row is None or is_read[row]:
                        continue
                    try:
                        features, boxes = _parse_line(line)
                    except (ValueError, OverflowError) as error:  # OverflowError: a width of 309 digits
                        problem = f"image {ids[row]} cannot be read ({error}); extract its features again"
                        damaged.setdefault(row, f"{file}, line {number}: {problem}")
                        continue
                    is_read[row] = True
                    yield ImportedRow(row, f"{file}, line {number}", features, boxes)
        except OSError as error:
            raise UserError(f"{file}: the TSV file cannot be read ({error.strerror}); name another file") from None
        digests[str(file)] = digest.hexdigest()
    if not is_read.all():
        row = int(np.argmin(is_read))
        missing = f"{', '.join(map(str, files))}: no line of image {ids[row]}; extract its features"
        raise UserError(damaged.get(row, missing))


def _parse_line(line: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return regions (n, D) and boxes (n, 4), as shares of the image's sides.

    Raises ValueError or OverflowError for a damaged line.
    """
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} columns instead of {', '.join(COLUMNS)}")
    width, height, count = map(int, fields[1:4])
    boxes, features = (np.frombuffer(binascii.a2b_base64(text, strict_mode=True), "<f4") for text in fields[4:])
    if count < 1 or len(boxes) != 4 * count or len(features) == 0 or len(features) % count:
        raise ValueError(f"found {len(boxes)} numbers of boxes and {len(features)} of features for {count} boxes")
    sides, boxes = np.array([width, height] * 2, np.float32), boxes.reshape(count, 4)
    is_inside = np.all((boxes >= -1) & (boxes <= sides + 1))  # a pixel beyond the edge may be rounding
    if not is_inside or min(width, height) < 1 or np.any(boxes[:, :2] > boxes[:, 2:]):
        raise ValueError(f"boxes that are not x1, y1, x2, y2 within {width}×{height} pixels")
    return features.reshape(count, -1), np.clip(boxes / sides, 0, 1)


def _read_detections(ids: Sequence[str], files: Sequence[Path], digests: Digests) -> Generator[ImportedRow, None, None]:
    import h5py

    file = files[0]
    try:
        archive = h5py.File(require_plain_file(file), "r")
    except OSError as error:
        cause = "no such file" if isinstance(error, FileNotFoundError) else summarise_error(error)
        raise UserError(f"{file}: the HDF5 file of detections cannot be read ({cause}); name another file") from None
    with archive:
        for row, id_ in enumerate(ids):
            try:
                features = read_dataset(archive, f"{id_}_features")[()]
                # the first class is the background; confidence is the highest probability of another class
                name = f"{id_}_cls_prob"
                confidence = None
                if name in archive:
                    probabilities = read_dataset(archive, name)[()]
                    _require_numbers(probabilities, 2, f"{file}: image {id_} has {name}", "(n, classes)")
                    confidence = probabilities[:, 1:].max(axis=1)
            except UserError:
                raise
            except KeyError:
                raise UserError(
                    f"{file}: no data set {id_}_features: image {id_} has no features there; extract its features"
                ) from None
            except (OSError, ValueError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{file}: the features of image {id_} cannot be read ({summarise_error(error)}); extract them again"
                ) from None
            if confidence is not None and features.ndim and len(confidence) != len(features):
                raise UserError(
                    f"{file}: image {id_} has {len(features)} regions, but {len(confidence)} in {id_}_cls_prob; "
                    "extract its features again"
                )
            yield ImportedRow(row, str(file), features, confidence=confidence)
    digests[str(file)] = compute_sha256(file)


class _NumpyFolder:
    """A folder of ID.npz, key `feat`, or ID.npy; `digests` collects the SHA-256 of each file that is read, by name."""

    def __init__(self, folder: Path, digests: Digests):
        self.folder, self.digests = folder, digests

    def read(self, id_: str) -> tuple[np.ndarray, Path]:
        """Return the features of image `id_`, and their file; raises UserError where they are missing or damaged."""
        for suffix in ("npz", "npy"):
            file = require_plain_file(resolve_inside(self.folder, f"{id_}.{suffix}"))
            try:
                content = file.read_bytes()
                self.digests[f"{id_}.{suffix}"] = hashlib.sha256(content).hexdigest()
                if suffix == "npz":
                    with zipfile.ZipFile(io.BytesIO(content)) as archive:
                        if archive.getinfo("feat.npy").file_size > MAX_ARRAY_BYTES:
                            raise ValueError(f"feat.npy states more than {MAX_ARRAY_BYTES:,} bytes")
                        content = archive.read("feat.npy")
                with PARSING:
                    return read_npy(content), file
            except FileNotFoundError:
                continue
            except (OSError, *UNREADABLE) as error:
                raise UserError(
                    f"{file}: the features of image {id_} cannot be read ({summarise_error(error)}); extract them again"
                ) from None
        raise UserError(f"{self.folder}: image {id_} has neither {id_}.npz nor {id_}.npy there; extract its features")


FORMATS = (
    FeatureFormat("npy_folders", "a folder of ID.npz, key feat, or ID.npy: (n, D), or a grid (H, W, D)", _read_folders),
    FeatureFormat("tsv", "one or more TSV files, with the regions' boxes", _read_tsv, lambda regions: True),
    FeatureFormat("detections", "an HDF5 file of ID_features (n, D)", _read_detections),
)


def _describe_sources(digests: Digests) -> dict[str, object]:
    """Return a single file's name and digest, or the number of files and a common digest.

    The common digest is computed from the names and digests, in the order of names.
    """
    if len(digests) == 1:
        [(name, digest)] = digests.items()
        return {"file": name, "sha256": digest}
    names_and_digests = json.dumps(digests, sort_keys=True)
    return {"files": len(digests), "sha256": hashlib.sha256(names_and_digests.encode()).hexdigest()}
