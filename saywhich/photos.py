"""Photo input: files, folders of files, Pillow images, arrays."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np
from PIL import Image
from tqdm import tqdm

from pipeline.errors import UserError, escape_line, summarise_error
from pipeline.features.images import open_within, to_upright_rgb
from pipeline.readers.folder import PHOTO_EXTENSIONS

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class UndecodedPhoto(Protocol):
    """A photo that is decoded on demand and not kept."""

    def decode(self, bytes_per_pixel: int) -> AbstractContextManager[Image.Image]:
        """Decode the photo for a block that uses `bytes_per_pixel` further bytes per pixel."""
        ...


Photo = str | Path | Image.Image | np.ndarray | UndecodedPhoto
Item = TypeVar("Item")
Result = TypeVar("Result")
UNLIKE = "-unlike"  # the end of the content digest of a photo that is unlike the training images
THREADS = 4  # decoding threads


@contextmanager
def open_photo(photo: Photo, bytes_per_pixel: int) -> Iterator[Image.Image]:
    """Open a photo as an upright RGB image, for a block that uses `bytes_per_pixel` further bytes per pixel.

    A photo is a path, a Pillow image of any mode, an `UndecodedPhoto`, or a uint8 array. An array has the shape (H, W),
    (H, W, 3) or (H, W, 4). Raises UserError for any other array, and for an image without pixels. Raises UserError for
    a file that is missing or cannot be decoded, and for pixels that cannot be converted to RGB.
    """
    if isinstance(photo, np.ndarray):
        is_photo = photo.ndim in (2, 3) and photo.shape[2:] in ((), (3,), (4,)) and photo.size > 0
        if photo.dtype != np.uint8 or not is_photo:
            kind = f"{photo.dtype} {photo.shape}"
            raise UserError(
                f"an array {kind} is no photo: give uint8, (height, width) or (height, width, 3 or 4), with pixels"
            )
        photo = Image.fromarray(photo)
    if isinstance(photo, Image.Image):
        yield _convert_to_rgb(photo)
        return
    with ExitStack() as stack:
        try:
            if isinstance(photo, str | Path):
                image = stack.enter_context(open_within(Path(photo), bytes_per_pixel))
            else:
                image = stack.enter_context(photo.decode(bytes_per_pixel))
        except FileNotFoundError:
            raise UserError(f"{photo}: no such photo; correct its path") from None
        yield image


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    """Convert a Pillow image to upright RGB; raises UserError where that is impossible."""
    kind = f"a Pillow image ({image.mode}, {image.width} × {image.height} pixels)"
    if 0 in image.size:
        raise UserError(f"{kind} is no photo: give one with pixels")
    try:
        return to_upright_rgb(image)
    except Exception as error:  # Pillow decodes a file on first use, and decoders can raise any exception
        raise UserError(f"{kind} cannot be read ({summarise_error(error)}); convert it to RGB") from None


def compute_content_digest(prepared: Tensor, unlike: bool = False) -> str:
    """Return the SHA-256 of a prepared image; the network cannot distinguish photos with equal digests.

    The digest of a photo that is `unlike` the training images ends in UNLIKE, so that caches keep it.
    """
    return hashlib.sha256(prepared.contiguous().numpy().tobytes()).hexdigest() + (UNLIKE if unlike else "")


def format_unlike_note(contents: Iterable[str], files: Sequence[str | Path]) -> str | None:
    """Return a line about the photos that are unlike the training images, by their `contents`; None without any."""
    unlike_files = [file for file, content in zip(files, contents, strict=True) if content.endswith(UNLIKE)]
    if not unlike_files:
        return None
    return escape_line(
        f"note: {len(unlike_files)} of {len(files)} photos are unlike the training images of this model, such as "
        f"{unlike_files[0]}: their captions and ranks are unreliable"
    )


def list_photo_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the given files, and all photos and films in and below the given folders, sorted by name in each folder.

    Hidden files and folders in a folder are skipped, and links to folders are not followed. Raises UserError for a path
    that is empty or does not exist, and where no photo is found.
    """
    files: list[Path] = []
    all_paths = list(paths)
    if "" in all_paths:  # an unset shell variable gives an empty path, which Path would read as the current folder
        raise UserError("a photo's path is empty; give a photo or a folder, such as .")
    for path in map(Path, all_paths):
        if path.is_dir():
            files += _find_photos_below(path)
        elif path.exists():
            files.append(path)
        else:
            raise UserError(f"{path}: no such photo or folder; correct the path")
    if not files:
        kinds = ", ".join(sorted(PHOTO_EXTENSIONS))
        raise UserError(f"{', '.join(str(Path(path)) for path in all_paths)}: no photos ({kinds}); name other folders")
    return files


def _find_photos_below(folder: Path) -> list[Path]:
    files = []
    for parent, folders, names in os.walk(folder):  # Path.rglob takes five times as long
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        visible = (name for name in names if not name.startswith("."))
        photos = (name for name in visible if os.path.splitext(name)[1].lower() in PHOTO_EXTENSIONS)
        files += [Path(parent, name) for name in sorted(photos)]
    return files


def load_in_threads(
    items: Iterable[Item], load: Callable[[Item], Result], batch_size: int
) -> Iterator[list[tuple[Item, Result | UserError]]]:
    """Yield batches of `batch_size` items, each with its result of `load` from threads, in the order of the items.

    A UserError is yielded in place of its item's result.
    """

    def try_load(item: Item) -> Result | UserError:
        try:
            return load(item)
        except UserError as error:
            return error

    source = iter(items)
    with ThreadPoolExecutor(THREADS) as pool:
        pending: list[list[tuple[Item, Future[Result | UserError]]]] = []
        try:
            while True:
                part = [(item, pool.submit(try_load, item)) for item in islice(source, batch_size)]
                pending += [part] if part else []
                if not pending:
                    return
                if len(pending) > 1 or not part:
                    yield [(item, future.result()) for item, future in pending.pop(0)]
        finally:
            pool.shutdown(cancel_futures=True)


def load_each(items: Iterable[Item], load: Callable[[Item], Result], batch_size: int) -> Iterator[list[Result]]:
    """Yield the results of `load_in_threads` in batches of `batch_size`; raises the first UserError."""
    for part in load_in_threads(items, load, batch_size):
        results = []
        for _, result in part:
            if isinstance(result, UserError):
                raise result
            results.append(result)
        yield results


def load_readable(
    items: Iterable[Item], load: Callable[[Item], Result], batch_size: int
) -> Iterator[tuple[list[Item], list[Result]]]:
    """Yield batches of the readable items and their results of `load`; report each other item in a line on stderr."""
    for part in load_in_threads(items, load, batch_size):
        readable = [(item, result) for item, result in part if not isinstance(result, UserError)]
        for _, error in part:
            if isinstance(error, UserError):
                tqdm.write(str(error), file=sys.stderr)
        if readable:
            yield [item for item, _ in readable], [result for _, result in readable]
