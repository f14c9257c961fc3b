"""saywhich judge CAPTIONS --images FOLDER: scores of captions by judges that did not generate them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saywhich.judging.judging_choices import (
    DEFAULT_JUDGE,
    ENCODER_FORMS,
    GALLERY_IMAGES,
    JUDGE_FORMS,
    THUMBNAIL,
)
from saywhich.judging.metric_choices import METRIC_CHOICES
from saywhich.outputs import check_outputs, print_lines


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
    parser.add_argument(
        "--references", metavar="FILE", help="people's captions of the same images, in any form of CAPTIONS"
    )
    add_judge_option(parser, "a model that ranks images by caption")
    add_gallery_options(parser)
    parser.add_argument("--galleries", metavar="FILE", help="use these hard galleries, JSON {photo: [other photos]}")
    parser.add_argument("--near-duplicates", action="store_true", help="keep near-duplicates in hard galleries")
    parser.add_argument("--instances", action="append", metavar="FILE", help="COCO's instance files, for CHAIR")
    parser.add_argument(
        "--ids", metavar="TABLE", help="a table of image_id and file, where file names do not end in the id"
    )
    add_metrics_option(parser)
    parser.add_argument("--json", metavar="OUT", help="write all numbers to OUT, too")
    parser.add_argument("--csv", metavar="OUT", help="write a table of all numbers to OUT, too")
    parser.add_argument("--html", metavar="OUT", help="write a page with the photos to OUT, too; it needs no network")


def add_judge_option(parser: ArgumentParser, purpose: str, required: bool = False) -> None:
    """Add `--judge`, which may be given several times; it has a default unless it is `required`."""
    default = "" if required else f"; default: {DEFAULT_JUDGE}"
    parser.add_argument(
        "--judge",
        action="append",
        required=required,
        metavar="NAME|DIR",
        help=f"{purpose}: {JUDGE_FORMS}; may be given several times{default}",
    )


def add_gallery_options(parser: ArgumentParser) -> None:
    """Add `--hard` and `--neighbours`, which make hard galleries."""
    parser.add_argument(
        "--hard", type=int, default=GALLERY_IMAGES, metavar="K", help="images in a hard gallery; default: %(default)s"
    )
    add_neighbours_option(parser, "hard galleries")


def add_neighbours_option(parser: ArgumentParser, photo_set: str) -> None:
    """Add `--neighbours`, the encoder that forms `photo_set`, such as hard galleries, from nearest photos."""
    parser.add_argument(
        "--neighbours",
        default=THUMBNAIL,
        metavar="NAME",
        help=f"the encoder whose nearest photos make {photo_set}: {ENCODER_FORMS}; default: %(default)s",
    )


def add_metrics_option(parser: ArgumentParser) -> None:
    """Add `--metrics`, which is parsed into a list of names."""
    parser.add_argument(
        "--metrics",
        type=lambda names: names.split(","),
        metavar="NAMES",
        help=f"metrics with --references, some of {','.join(METRIC_CHOICES)}; default: all that can be computed",
    )


def collect_judge_arguments(options: Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `saywhich.judge` that the command line gives."""
    return {
        "references": options.references,
        "judges": options.judge or (DEFAULT_JUDGE,),
        "hard": options.hard,
        "neighbours": options.neighbours,
        "galleries": options.galleries,
        "near_duplicates": options.near_duplicates,
        "instances": options.instances or (),
        "ids": options.ids,
        "metrics": options.metrics,
    }


def list_inputs(options: Namespace) -> list[str | None]:
    """Return the files that `judge` and `compare` read besides captions."""
    return [options.references, options.galleries, options.ids, *(options.instances or ())]


def run(options: Namespace) -> int:
    """Print the table, write the files, and return 0; notes about the inputs are lines on stderr."""
    import saywhich
    from saywhich.judging.score_files import make_judgement_record, write_csv, write_json
    from saywhich.judging.score_tables import format_judgement_lines

    check_outputs(options.json, options.csv, options.html, inputs=[options.captions, *list_inputs(options)])
    judgement = saywhich.judge(options.captions, options.images, **collect_judge_arguments(options))
    print_notes(judgement.notes)
    print_lines(format_judgement_lines(judgement))
    if options.json:
        write_json(Path(options.json), make_judgement_record(judgement))
    if options.csv:
        write_csv(Path(options.csv), judgement)
    if options.html:
        from saywhich.judging.judged_page import write_judged_page

        write_judged_page(Path(options.html), judgement)
    return 0


def print_notes(notes: Iterable[str]) -> None:
    """Print each note about the inputs in a line on stderr."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
