"""saywhich caption PHOTO|FOLDER…: caption each photo; --among selects the caption that identifies it among those."""

from __future__ import annotations

import csv
import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm

import saywhich
from pipeline.errors import UserError, one_line
from pipeline.runtime.escaping import csv_cell
from saywhich.commands import chosen_model, model_option
from saywhich.outputs import open_output
from saywhich.pragmatic_decoding import DISTRACTORS, LISTENER, SPEAKER, PragmaticDecoding, PragmaticGallery
from saywhich.pretrained.pretrained_options import add_pretrained, open_captioner

if TYPE_CHECKING:
    from saywhich.model import Caption

CANDIDATES = 20  # default number of ranked samples
COLUMNS = ("file", "caption", "rank", "of", "margin")
Write = Callable[[Path, "Caption"], None]


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("photos", nargs="+", metavar="PHOTO|FOLDER", help="photos, or folders of them")
    model_option(parser)
    parser.add_argument(
        "--among",
        action="append",
        metavar="FOLDER",
        help="distinguish each photo from these photos: of several captions, print the one by which the listener "
        "ranks the photo highest, and that rank",
    )
    parser.add_argument(
        "--pragmatic",
        type=float,
        metavar="ALPHA",
        help="with --among: choose each word to tell the photo from the most similar ones, too; ALPHA weighs this, and "
        "0 chooses words as without; begin with 1",
    )
    parser.add_argument(
        "--distractors",
        type=int,
        metavar="N",
        help=f"with --pragmatic: the number of similar photos; default: {DISTRACTORS}",
    )
    parser.add_argument(
        "--posterior",
        choices=(SPEAKER, LISTENER),
        help="with --pragmatic: who tells the photo from the similar ones, the speaker itself (default), or the "
        "listener that --among uses",
    )
    generation = parser.add_mutually_exclusive_group()
    generation.add_argument("--beam", type=int, metavar="N", help="the best of a beam of N; default: 5")
    generation.add_argument(
        "--samples", type=int, metavar="N", help=f"N captions drawn at random; default with --among: {CANDIDATES}"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn; default: 0")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--csv", metavar="OUT", help="write a table there instead")
    where.add_argument("--jsonl", metavar="OUT", help="write JSON lines there instead, with all candidates")
    where.add_argument(
        "--coco", metavar="OUT", help="write COCO's results form there instead; names of files end in the image's id"
    )
    add_pretrained(parser)
    parser.add_argument("--batch", type=int, metavar="N", help="captions generated at once by --speaker; default: 32")


def run(options: Namespace) -> int:
    """Caption the photos in batches; return 1 where one could not be read, else 0."""
    from saywhich.photos import photo_files

    photos = photo_files(options.photos)
    for photo in photos if options.coco else ():
        coco_id(photo)  # before a long run
    gallery = photo_files(options.among) if options.among else []
    pragmatic = _pragmatic(options)
    ranked = gallery and options.beam is None and pragmatic is None
    samples = options.samples or (CANDIDATES if ranked else None)
    if options.speaker is None and options.preset is None:
        if options.listener is not None:
            raise UserError(f"--listener {options.listener}: goes with --speaker or --preset; give one of them")
        return _run_trained(options, photos, gallery, samples, pragmatic)
    captioner = open_captioner(options, bool(gallery), samples, pragmatic)
    with _out(options) as write, _progress(photos) as bar:
        for part, captions in captioner.stream(photos, gallery):
            for file, caption in zip(part, captions, strict=True):
                write(file, caption)
            bar.update(len(part))
    return int(captioner.broken > 0)


def _pragmatic(options: Namespace) -> PragmaticDecoding | None:
    """Return the settings of pragmatic decoding, if any; raises UserError for options that do not go together."""
    if options.pragmatic is None:
        for name in ("distractors", "posterior"):
            if (given := getattr(options, name)) is not None:
                raise UserError(f"--{name} {given}: goes with --pragmatic; give --pragmatic 1")
        return None
    if not options.among:
        raise UserError(f"--pragmatic {options.pragmatic:g}: tells photos from those of --among; give --among FOLDER")
    distractors = DISTRACTORS if options.distractors is None else options.distractors
    return PragmaticDecoding(options.pragmatic, distractors, options.posterior or SPEAKER)


def _run_trained(
    options: Namespace,
    photos: list[Path],
    gallery: list[Path],
    samples: int | None,
    pragmatic: PragmaticDecoding | None,
) -> int:
    """Caption the photos by a trained model and its own listener; return the exit status."""
    import torch

    from saywhich.model import BEAM, Distractors
    from saywhich.photos import unlike_note
    from saywhich.streaming import PhotoStream

    model = saywhich.load(chosen_model(options))
    stream = PhotoStream(model)
    generation: dict[str, Any] = {"beam": BEAM if options.beam is None else options.beam, "samples": samples}
    if gallery:
        others = stream.gallery(gallery)
        among = Distractors(torch.from_numpy(others.vectors), others.contents)
        generation["among"] = among
        if pragmatic is not None:
            generation["pragmatic"] = PragmaticGallery(
                pragmatic, among, lambda rows: model.extract_features([others.files[row] for row in rows])
            )
    files: list[Path] = []
    contents: list[str] = []
    with _out(options) as write, _progress(photos) as bar:
        for part, features in stream.features(photos):
            captions = model.caption_features(features, **generation, seed=options.seed)
            for file, caption in zip(part, captions, strict=True):
                write(file, caption)
            bar.update(len(part))
            files, contents = [*files, *part], [*contents, *features.contents]
    if note := unlike_note(contents, files):
        print(note, file=sys.stderr)
    return int(stream.broken > 0)


def _progress(photos: list[Path]) -> tqdm[Any]:
    return tqdm(total=len(photos), desc="photos", unit="", disable=None)


@contextmanager
def _out(options: Namespace) -> Iterator[Write]:
    """Yield a function that writes one caption to the chosen output."""
    path = options.csv or options.jsonl or options.coco
    if not path:
        yield _print
        return
    with open_output(Path(path)) as file:
        if options.coco:
            results: list[dict[str, Any]] = []
            yield lambda photo, caption: results.append({"image_id": coco_id(photo), "caption": caption.text})
            json.dump(results, file)
        else:
            yield _table(file, bool(options.among)) if options.csv else _lines(file)


def coco_id(photo: Path) -> int:
    """Return COCO's id of an image, the digits at the end of its file's name; raises UserError where there are none."""
    found = re.search(r"[0-9]{1,18}$", photo.stem, re.ASCII)
    if found is None:
        raise UserError(f"{photo}: --coco needs an image's id at the end of the name, such as 000000000042.jpg")
    return int(found[0])


def _print(file: Path, caption: Caption) -> None:
    rank = "" if caption.rank is None else f"\t{caption.rank}/{caption.of}"
    print(f"{one_line(str(file))}\t{one_line(caption.text)}{rank}", flush=True)


def _table(out: TextIO, ranked: bool) -> Write:
    rows = csv.writer(out)
    columns = COLUMNS if ranked else COLUMNS[:2]
    rows.writerow(columns)

    def write(file: Path, caption: Caption) -> None:
        margin = "" if caption.margin is None else f"{caption.margin:.4f}"
        row = csv_cell(str(file)), csv_cell(caption.text), caption.rank, caption.of, margin
        rows.writerow(row[: len(columns)])

    return write


def _lines(out: TextIO) -> Write:
    def write(file: Path, caption: Caption) -> None:
        entry: dict[str, Any] = {"file": str(file), "caption": caption.text}
        if caption.rank is not None:
            entry |= {"rank": caption.rank, "of": caption.of, "margin": caption.margin}
        entry |= {"unlike_training_images": True} if caption.unlike else {}
        entry |= {"candidates": list(caption.candidates)} if len(caption.candidates) > 1 else {}
        print(json.dumps(entry), file=out)

    return write
