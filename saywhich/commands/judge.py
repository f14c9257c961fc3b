"""saywhich judge CAPTIONS --images FOLDER: how distinctive captions are, by judges that did not write them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HARD = 10
DEFAULT = "open_clip/ViT-B-32.openai"


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "captions",
        metavar="CAPTIONS",
        help="COCO's results form, {file: caption}, or a table with the columns file and caption (CSV, JSON Lines, "
        "Parquet)",
    )
    add_judging(parser)


def add_judging(parser: ArgumentParser) -> None:
    """Add the options that `judge` and `compare` share."""
    parser.add_argument("--images", required=True, metavar="FOLDER", help="the photos, in and below this folder")
    parser.add_argument("--references", metavar="FILE", help="people's captions of the same images, in any such form")
    parser.add_argument(
        "--judge",
        action="append",
        metavar="NAME|DIR",
        help="a model that ranks images by caption: a folder that saywhich export wrote (works offline), "
        "open_clip/NAME.TAG, open_clip/NAME.TAG=FILE.safetensors, pac_s/NAME=FILE.safetensors, or hub/NAME (CLIP, "
        f"SigLIP); may be given several times; default: {DEFAULT}",
    )
    parser.add_argument(
        "--hard", type=int, default=HARD, metavar="K", help="images in a hard gallery; default: %(default)s"
    )
    parser.add_argument(
        "--neighbours",
        default="thumbnail",
        metavar="NAME",
        help="the encoder whose nearest photos make hard galleries: thumbnail (no weights), a judge's name, or a "
        "network of timm, NAME or NAME=FILE.safetensors; default: %(default)s",
    )
    parser.add_argument("--galleries", metavar="FILE", help="hard galleries instead, JSON {photo: [other photos]}")
    parser.add_argument("--near-duplicates", action="store_true", help="keep near-duplicates in hard galleries")
    parser.add_argument("--instances", action="append", metavar="FILE", help="COCO's instance files, for CHAIR")
    parser.add_argument("--ids", metavar="TABLE", help="image_id and file, where files' names do not end in the id")
    parser.add_argument(
        "--metrics", metavar="NAMES", help="of BLEU,METEOR,ROUGE-L,CIDEr,SPICE with --references; default: all that run"
    )
    parser.add_argument("--json", metavar="OUT", help="write all numbers there, too")
    parser.add_argument("--csv", metavar="OUT", help="write a table of all numbers there, too")
    parser.add_argument("--html", metavar="OUT", help="write a page with the photos there, too; it needs no network")


def options_of(options: Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `saywhich.judge` that the command line gives."""
    return {
        "references": options.references,
        "judges": options.judge or (DEFAULT,),
        "hard": options.hard,
        "neighbours": options.neighbours,
        "galleries": options.galleries,
        "near_duplicates": options.near_duplicates,
        "instances": options.instances or (),
        "ids": options.ids,
        "metrics": None if options.metrics is None else options.metrics.split(","),
    }


def run(options: Namespace) -> int:
    """Print the table, write the files, and return 0; notes about the inputs are lines on stderr."""
    import saywhich
    from saywhich.judging.score_files import judgement_record, write_csv, write_json
    from saywhich.judging.score_tables import judgement_lines

    found = saywhich.judge(options.captions, options.images, **options_of(options))
    print_notes(found.notes)
    for line in judgement_lines(found):
        print(line)
    if options.json:
        write_json(Path(options.json), judgement_record(found))
    if options.csv:
        write_csv(Path(options.csv), found)
    if options.html:
        from saywhich.judging.judged_page import write_judged_page

        write_judged_page(Path(options.html), found)
    return 0


def print_notes(notes: Iterable[str]) -> None:
    """Print each note about the inputs in a line on stderr."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
