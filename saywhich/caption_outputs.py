"""Outputs of captions as they are generated: lines, tables, COCO's form, a page, and the photos themselves."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm

from pipeline.errors import UserError, escape_line
from pipeline.runtime.escaping import escape_csv_cell
from saywhich.outputs import check_outputs, drop_output, open_output

if TYPE_CHECKING:
    from saywhich.captioning_model import Caption

COLUMNS = ("file", "caption", "rank", "of", "margin")
Write = Callable[[Path, "Caption"], None]


def add_outputs(parser: ArgumentParser) -> None:
    """Add the options of outputs to the parser of `caption`."""
    table_outputs = parser.add_mutually_exclusive_group()
    table_outputs.add_argument("--csv", metavar="OUT", help="write a table to OUT instead of lines to stdout")
    table_outputs.add_argument("--jsonl", metavar="OUT", help="write JSON lines, with all candidates, to OUT instead")
    table_outputs.add_argument(
        "--coco", metavar="OUT", help="write COCO's results form to OUT instead; file names must end in the image's id"
    )
    parser.add_argument("--html", metavar="OUT", help="write a page with the photos, too")
    photos = parser.add_mutually_exclusive_group()
    photos.add_argument(
        "--xmp",
        metavar="FOLDER",
        help="write copies of the photos to FOLDER, too, with the caption as their description (JPEG, PNG, WebP)",
    )
    photos.add_argument(
        "--in-place",
        action="store_true",
        help="write the caption into the photos themselves, too, as their description",
    )


@dataclass
class CaptionOutputs:
    """Open outputs; `failed` counts failed writes, such as a write into a photo that cannot hold a caption."""

    writers: list[Write] = field(default_factory=list)
    failed: int = 0

    def write(self, file: Path, caption: Caption) -> None:
        """Write the caption of a photo to each output; report each failed write in a line on stderr."""
        for write in self.writers:
            try:
                write(file, caption)
            except UserError as error:
                self.failed += 1
                tqdm.write(str(error), file=sys.stderr)


@contextmanager
def open_outputs(options: Namespace, photos: Sequence[Path]) -> Iterator[CaptionOutputs]:
    """Open the outputs that the options name, before a long run over `photos`.

    Raises UserError for photos without an id of their own (--coco). Raises UserError for copies that would replace
    photos, and for an unusable folder (--xmp), and as `check_outputs` does.
    """
    table = options.csv or options.jsonl or options.coco
    check_outputs(table, options.html, inputs=photos if table or options.html else ())
    if options.coco:
        _check_ids(photos)
    copies = _plan_copies(photos, options.xmp, options.photos) if options.xmp else {}
    with ExitStack() as stack:
        outputs = CaptionOutputs([stack.enter_context(_open_table_or_lines(options))])
        if options.html:
            outputs.writers.append(stack.enter_context(_open_page(Path(options.html))))
        if options.xmp:
            outputs.writers.append(lambda photo, caption: _write_copy(photo, caption, copies[photo]))
        elif options.in_place:
            outputs.writers.append(_write_into_photo)
        yield outputs


def _check_ids(photos: Sequence[Path]) -> None:
    """Raise UserError for a photo without an id, or with another photo's id: COCO's results name photos by ids."""
    photo_of_id: dict[int, Path] = {}
    for photo in photos:
        if (other := photo_of_id.setdefault(number := parse_coco_id(photo), photo)) is not photo:
            raise UserError(
                f"{photo}: --coco needs a different id for each photo, and {other} has {number}, too; rename one, or "
                "caption them in two runs"
            )


def _plan_copies(photos: Sequence[Path], folder: str, arguments: Sequence[str]) -> dict[Path, Path]:
    """Return the path of each photo's copy: below `folder`, its path relative to the folder that all photos share.

    Raises UserError where `folder` is a file or lies within a captioned folder, and for a copy in place of a photo.
    """
    out = Path(os.path.abspath(folder))
    if out.exists() and not out.is_dir():
        raise UserError(f"--xmp {folder}: is a file; name a folder for the copies")
    real_folder = Path(os.path.realpath(folder))
    for argument in map(os.path.realpath, arguments):
        if os.path.isdir(argument) and real_folder.is_relative_to(argument):
            raise UserError(
                f"--xmp {folder}: lies within {argument}, whose photos are captioned; give a folder outside"
            )
    absolute_paths = [Path(os.path.abspath(photo)) for photo in photos]
    common_folder = os.path.commonpath([path.parent for path in absolute_paths])
    copies = {photo: out / path.relative_to(common_folder) for photo, path in zip(photos, absolute_paths, strict=True)}
    photo_of_path = {os.path.realpath(photo): photo for photo in photos}
    for photo, copy in copies.items():
        replaced = photo if copy.exists() and copy.samefile(photo) else photo_of_path.get(os.path.realpath(copy))
        if replaced is not None:
            replacement = "its copy" if replaced == photo else f"the copy of {photo}"
            raise UserError(
                f"--xmp {folder}: {replaced} would be replaced by {replacement}; give another folder, or --in-place"
            )
    return copies


def _write_copy(photo: Path, caption: Caption, copy: Path) -> None:
    from saywhich.described_photo import describe_photo, is_copy

    if copy.exists() and not is_copy(copy, photo):
        raise UserError(f"{copy}: expected a copy of {photo}, found another file; give another folder to --xmp")
    describe_photo(photo, caption.text, copy)


def _write_into_photo(photo: Path, caption: Caption) -> None:
    """Write the caption into the photo, and print a different former description on stderr."""
    from saywhich.described_photo import describe_photo

    if (former := describe_photo(photo, caption.text, photo)) and former != caption.text:
        tqdm.write(escape_line(f"note: {photo}: the description was {former!r}"), file=sys.stderr)


@contextmanager
def _open_page(path: Path) -> Iterator[Write]:
    from saywhich.contact_sheet import make_sheet_entry, write_sheet

    entries: list[Any] = []
    yield lambda photo, caption: entries.append(make_sheet_entry(photo, caption))
    write_sheet(path, entries)


@contextmanager
def _open_table_or_lines(options: Namespace) -> Iterator[Write]:
    """Yield a function that writes one caption to the chosen output."""
    path = options.csv or options.jsonl or options.coco
    if not path:  # without another output, a closed standard output ends the run
        yield _print_while_open if options.html or options.xmp or options.in_place else _print_caption
        return
    with open_output(Path(path)) as file:
        if options.coco:
            results: list[dict[str, Any]] = []
            yield lambda photo, caption: results.append({"image_id": parse_coco_id(photo), "caption": caption.text})
            json.dump(results, file)
        else:
            yield _make_table_writer(file, bool(options.among)) if options.csv else _make_line_writer(file)


def parse_coco_id(photo: Path) -> int:
    """Return COCO's id of an image, the last digits of its file's name, at most 18; raises UserError without any."""
    match = re.search(r"[0-9]{1,18}$", photo.stem, re.ASCII)
    if match is None:
        raise UserError(f"{photo}: --coco needs an image's id at the end of the name, such as 000000000042.jpg")
    return int(match[0])


def _print_caption(file: Path, caption: Caption) -> None:
    rank = "" if caption.rank is None else f"\t{caption.rank}/{caption.of}"
    print(f"{escape_line(str(file))}\t{escape_line(caption.text)}{rank}", flush=True)


def _print_while_open(file: Path, caption: Caption) -> None:
    """Print a caption; where standard output is closed, discard this and all later lines without an error."""
    try:
        _print_caption(file, caption)
    except BrokenPipeError:
        drop_output()


def _make_table_writer(out: TextIO, has_ranks: bool) -> Write:
    rows = csv.writer(out)
    columns = COLUMNS if has_ranks else COLUMNS[:2]
    rows.writerow(columns)

    def write(file: Path, caption: Caption) -> None:
        margin = "" if caption.margin is None else f"{caption.margin:.4f}"
        row = escape_csv_cell(str(file)), escape_csv_cell(caption.text), caption.rank, caption.of, margin
        rows.writerow(row[: len(columns)])

    return write


def _make_line_writer(out: TextIO) -> Write:
    def write(file: Path, caption: Caption) -> None:
        entry: dict[str, Any] = {"file": str(file), "caption": caption.text}
        if caption.rank is not None:
            # the margin is infinite where no other photo was compared; standard JSON has no such number
            margin = caption.margin if caption.margin is not None and math.isfinite(caption.margin) else None
            entry |= {"rank": caption.rank, "of": caption.of, "margin": margin}
        entry |= {"unlike_training_images": True} if caption.unlike else {}
        entry |= {"candidates": list(caption.candidates)} if len(caption.candidates) > 1 else {}
        print(json.dumps(entry), file=out)

    return write
