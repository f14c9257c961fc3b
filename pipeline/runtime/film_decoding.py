"""Decoding of films and animated images frame by frame, by PyAV and Pillow, within bounds of time and memory.

A file is read twice: first for the duration of each frame, then for the requested frames, one at a time. The format
of a film follows from the file's extension, so that playlists of other files are never followed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.untrusted import require_plain_file

CONTAINERS = {".mp4": "mov", ".m4v": "mov", ".mov": "mov", ".webm": "matroska", ".mkv": "matroska"}  # PyAV's names
ANIMATED = ("GIF", "WEBP", "PNG", "AVIF")  # Pillow's names
MAX_FRAMES = 10_000  # per film: more than five minutes at 30 frames a second
MAX_PIXELS = 4 * 10**9  # per film: a minute at 1920×1080 pixels and 30 frames a second
MAX_FRAME_PIXELS = 2**25  # pixels: 8K
# ms for a frame of an animated image whose duration is missing or below 20 ms, as in browsers for GIF
DEFAULT_DURATION = 100


class Timeline(NamedTuple):
    """Duration and start of each frame of a film in ticks, and the ticks per second."""

    durations: Sequence[int]
    ticks_per_second: Fraction = Fraction(1000)
    starts: Sequence[int] = ()  # only for films decoded by PyAV


def is_film(path: Path) -> bool:
    """Return whether a file is a film by its name; animated images are recognised only once opened."""
    return path.suffix.lower() in CONTAINERS


def is_animated(image: Image.Image) -> bool:
    """Return whether an image that Pillow opened is animated; frames of other formats are pages or views."""
    return image.format in ANIMATED and bool(getattr(image, "is_animated", False))


def is_moving(path: Path) -> bool:
    """Return whether a file is a film by its name, or an animated image; False for images that cannot be opened."""
    if is_film(path):
        return True
    try:
        with Image.open(path) as image:
            return is_animated(image)
    except Exception:  # damaged files raise errors of any type
        return False


def choose_frame_indices(
    durations: Sequence[float], frames: int, rate: float | None = None, ticks_per_second: Fraction = Fraction(1000)
) -> list[int]:
    """Return the indices of F frames to take from a film, whose frames last `durations` ticks.

    The i-th index, from 0, is the frame shown at (i + ½) / F of the film; indices may repeat. F is `frames`. With
    `rate`, in frames per second, F follows from the duration: at least one and at most `frames`.
    """
    total = sum(durations)
    if rate is not None:
        frames = min(max(round(float(total / ticks_per_second) * rate), 1), frames)
    ends = [2 * frames * end for end in accumulate(durations)]
    return [min(bisect_right(ends, (2 * i + 1) * total), len(ends) - 1) for i in range(frames)]


def read_timeline(path: Path) -> Timeline:
    """Return the duration of each frame of a film; a still image has one frame.

    Raises FileNotFoundError where there is no file, and UserError where it cannot be decoded or is beyond the bounds.
    """
    with _explain_decoding_errors(path):
        return _read_film_timeline(path) if is_film(path) else _read_image_timeline(path)


def decode_frames(path: Path, indices: Sequence[int], timeline: Timeline) -> Iterator[Image.Image]:
    """Yield the frames `indices`, ascending, as Pillow images.

    `timeline` is the result of `read_timeline`. Raises the errors of `read_timeline`.
    """
    with _explain_decoding_errors(path):
        if timeline.starts:
            yield from _decode_film(path, [timeline.starts[n] for n in indices])
        else:
            yield from _decode_image(path, indices)


def check_film(path: Path) -> None:
    """Decode a film to its last frame. Raises the errors of `read_timeline`."""
    timeline = read_timeline(path)
    if is_film(path):  # `read_timeline` decoded all frames of an animated image
        for _ in decode_frames(path, [len(timeline.durations) - 1], timeline):
            pass


@contextmanager
def _explain_decoding_errors(path: Path) -> Iterator[None]:
    """Raise every error of the block except FileNotFoundError as a UserError that names the file.

    Raises UserError before the block for an empty file, a folder, a pipe or a device.
    """
    try:
        if require_plain_file(path).stat().st_size == 0:
            raise UserError(f"{path}: the file is empty (zero bytes); copy it again")
        yield
    except (FileNotFoundError, UserError, GeneratorExit):
        raise
    except Exception as error:  # damaged files raise errors of any type
        problem = summarise_error(error, 1000).replace(str(path), path.name)
        raise UserError(f"{path}: the file cannot be decoded ({problem}); replace it") from None


def _check_bounds(path: Path, frames: int, width: int, height: int) -> None:
    pixels = width * height
    if pixels > MAX_FRAME_PIXELS:
        raise UserError(f"{path}: frames of {width}×{height} pixels exceed {MAX_FRAME_PIXELS:,} pixels; reduce them")
    if frames > MAX_FRAMES or frames * pixels > MAX_PIXELS:
        limits = f"at most {MAX_FRAMES:,} frames and {MAX_PIXELS:,} pixels of all frames are read"
        raise UserError(f"{path}: the film is too long or too large: {limits}; cut it or make it smaller")


def _read_image_timeline(path: Path) -> Timeline:
    durations: list[int] = []
    with Image.open(path) as image:
        if not is_animated(image):
            image.load()
            return Timeline([DEFAULT_DURATION])
        while True:
            _check_bounds(path, len(durations) + 1, *image.size)
            image.load()
            duration = round(image.info.get("duration") or 0)
            durations.append(duration if duration >= 20 else DEFAULT_DURATION)
            try:
                image.seek(len(durations))
            except EOFError:
                return Timeline(durations)


def _decode_image(path: Path, indices: Sequence[int]) -> Iterator[Image.Image]:
    with Image.open(path) as image:
        for index in indices:
            if index:
                image.seek(index)
            yield image.copy()


@contextmanager
def _open_stream(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the container and its first video stream."""
    try:
        import av
    except ImportError:
        raise UserError(f"{path}: films need PyAV, which is not installed: pip install 'saywhich[films]'") from None
    container = CONTAINERS[path.suffix.lower()]
    with av.open(str(path), format=container, options={"protocol_whitelist": "file"}) as film:
        if not film.streams.video:
            raise UserError(f"{path}: the film has no video stream; give another film")
        stream = film.streams.video[0]
        stream.codec_context.thread_count = 1  # films are decoded in parallel
        yield film, stream


def _read_film_timeline(path: Path) -> Timeline:
    with _open_stream(path) as (film, stream):
        size = stream.codec_context.width, stream.codec_context.height
        starts: list[int] = []
        for packet in film.demux(stream):
            timestamp = packet.dts if packet.pts is None else packet.pts
            if timestamp is not None and packet.size:
                starts.append(int(timestamp))
                last = int(packet.duration or 0)
                _check_bounds(path, len(starts), *size)
        if not starts:
            raise UserError(f"{path}: the film has no frames; give another film")
        starts = sorted(set(starts))
        durations = [following - start for start, following in pairwise(starts)]
        return Timeline([*durations, last or max(durations, default=1)], 1 / Fraction(stream.time_base), starts)


def _decode_film(path: Path, starts: Sequence[int]) -> Iterator[Image.Image]:
    """Yield the frame that is shown at each of `starts`, ascending ticks, rotated upright."""
    with _open_stream(path) as (film, stream):
        remaining, previous = list(reversed(starts)), None
        for frame in film.decode(stream):
            _check_bounds(path, 1, frame.width, frame.height)
            while previous is not None and remaining and frame.pts is not None and remaining[-1] < frame.pts:
                remaining.pop()
                yield _rotate_upright(previous)
            if not remaining:
                return
            previous = frame
        if previous is None:
            raise UserError(f"{path}: no frame of the film can be decoded; replace the file")
        for _ in remaining:
            yield _rotate_upright(previous)


def _rotate_upright(frame: Any) -> Image.Image:
    """Return a frame as an image with the rotation that players apply; phones store portrait films sideways."""
    image: Image.Image = frame.to_image()
    return image.rotate(frame.rotation, expand=True) if frame.rotation else image  # degrees counterclockwise
