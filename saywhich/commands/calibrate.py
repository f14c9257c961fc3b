"""saywhich calibrate RATINGS --images FOLDER: how well judges and metrics agree with people's ratings of captions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.commands.judge import DEFAULT, print_notes


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "ratings",
        metavar="RATINGS",
        help="a table with the columns image, caption, rating and possibly rater (CSV, Parquet), or the JSON form of "
        "Flickr8k-Expert and Flickr8k-CF that CLIPScore publishes",
    )
    parser.add_argument("--images", required=True, metavar="FOLDER", help="the photos, in and below this folder")
    parser.add_argument("--references", metavar="FILE", help="people's captions, of any form that saywhich judge reads")
    parser.add_argument(
        "--judge",
        action="append",
        metavar="NAME|DIR",
        help=f"a judge's name as in saywhich judge; may be given several times; default: {DEFAULT}",
    )
    parser.add_argument(
        "--metrics", metavar="NAMES", help="of BLEU,METEOR,ROUGE-L,CIDEr,SPICE with references; default: all that run"
    )
    parser.add_argument("--json", metavar="OUT", help="write all numbers there, too")


def run(options: Namespace) -> int:
    """Print the table of correlations, and notes about the inputs on stderr."""
    import saywhich
    from saywhich.calibrating.calibration_table import calibration_lines
    from saywhich.judging.score_files import write_json

    found = saywhich.calibrate(
        options.ratings,
        options.images,
        references=options.references,
        judges=options.judge or (DEFAULT,),
        metrics=None if options.metrics is None else options.metrics.split(","),
    )
    print_notes(found.notes)
    for line in calibration_lines(found):
        print(line)
    if options.json:
        write_json(Path(options.json), found.record())
    return 0
