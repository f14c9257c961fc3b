"""saywhich hacked BEFORE AFTER --images FOLDER --reward NAME --judge NAME: the share of a gain that judges confirm."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.commands.judge import add_gallery_options, add_judge_option, print_notes
from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("before", metavar="BEFORE", help="captions before the training, in any form of saywhich judge")
    parser.add_argument("after", metavar="AFTER", help="captions of the same photos after the training")
    parser.add_argument("--images", required=True, metavar="FOLDER", help="the photos, in and below this folder")
    parser.add_argument("--reward", required=True, metavar="NAME|DIR", help="the model that rewarded the training")
    add_judge_option(parser, "an independent judge", required=True)
    add_gallery_options(parser)
    parser.add_argument(
        "--ids", metavar="TABLE", help="a table of image_id and file, where file names do not end in the id"
    )
    parser.add_argument("--json", metavar="OUT", help="write all numbers to OUT, too")
    parser.add_argument("--html", metavar="OUT", help="write a page with the photos to OUT, too")


def run(options: Namespace) -> int:
    """Print gains, n-grams and captions, write the requested files, and return 0; notes on the inputs go to stderr."""
    import saywhich
    from saywhich.judging.score_files import write_json
    from saywhich.reward_hacking.hacked_page import format_hacking_lines, write_reward_hacking_page

    check_outputs(options.json, options.html, inputs=[options.before, options.after, options.ids])
    hacking = saywhich.hacked(
        options.before,
        options.after,
        options.images,
        reward=options.reward,
        judges=options.judge,
        hard=options.hard,
        neighbours=options.neighbours,
        ids=options.ids,
    )
    print_notes(hacking.notes)
    print_lines(format_hacking_lines(hacking))
    if options.json:
        write_json(Path(options.json), hacking.record())
    if options.html:
        write_reward_hacking_page(Path(options.html), hacking)
    return 0
