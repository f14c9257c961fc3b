"""saywhich calibrate RATINGS --images FOLDER: agreement of judges and metrics with people's ratings."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.commands.judge import add_judge_option, add_metrics_option, print_notes
from saywhich.judging.judging_choices import DEFAULT_JUDGE
from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "ratings",
        metavar="RATINGS",
        help="a table with the columns image, caption, rating and optionally rater (CSV, JSON Lines, Parquet), "
        "CLIPScore's JSON, or a published file of Flickr8k-Expert, Flickr8k-CF, Composite or Pascal-50S "
        "(pair_pascal.mat)",
    )
    parser.add_argument("--images", required=True, metavar="FOLDER", help="the photos, in and below this folder")
    parser.add_argument("--references", metavar="FILE", help="people's captions, of any form that saywhich judge reads")
    add_judge_option(parser, "a model whose scores are compared with the ratings")
    add_metrics_option(parser)
    parser.add_argument("--json", metavar="OUT", help="write all numbers to OUT, too")


def run(options: Namespace) -> int:
    """Print the table of correlations or accuracies, write the file, and return 0; notes are lines on stderr."""
    import saywhich
    from saywhich.calibrating.calibration_table import format_calibration_lines
    from saywhich.judging.score_files import write_json

    check_outputs(options.json, inputs=[options.ratings, options.references])
    calibration = saywhich.calibrate(
        options.ratings,
        options.images,
        references=options.references,
        judges=options.judge or (DEFAULT_JUDGE,),
        metrics=options.metrics,
    )
    print_notes(calibration.notes)
    print_lines(format_calibration_lines(calibration))
    if options.json:
        write_json(Path(options.json), calibration.record())
    return 0
