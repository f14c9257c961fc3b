"""saywhich hacked BEFORE AFTER --images FOLDER --reward NAME: how much of the reward's gain independent judges see."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.commands.judge import gallery_options, judge_option, print_notes
from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("before", metavar="BEFORE", help="captions before the training, in any form of saywhich judge")
    parser.add_argument("after", metavar="AFTER", help="captions of the same photos after it")
    parser.add_argument("--images", required=True, metavar="FOLDER", help="the photos, in and below this folder")
    parser.add_argument("--reward", required=True, metavar="NAME|DIR", help="the model that rewarded the training")
    judge_option(parser, "an independent judge", required=True)
    gallery_options(parser)
    parser.add_argument("--ids", metavar="TABLE", help="image_id and file, where files' names do not end in the id")
    parser.add_argument("--json", metavar="OUT", help="write all numbers to OUT, too")
    parser.add_argument("--html", metavar="OUT", help="write a page with the photos to OUT, too")


def run(options: Namespace) -> int:
    """Print gains, n-grams and captions, and notes about the inputs on stderr."""
    import saywhich
    from saywhich.judging.score_files import write_json
    from saywhich.reward_hacking.hacked_page import hacking_lines, write_hacked_page

    check_outputs(options.json, options.html, inputs=[options.before, options.after, options.ids])
    found = saywhich.hacked(
        options.before,
        options.after,
        options.images,
        reward=options.reward,
        judges=options.judge,
        hard=options.hard,
        neighbours=options.neighbours,
        ids=options.ids,
    )
    print_notes(found.notes)
    print_lines(hacking_lines(found))
    if options.json:
        write_json(Path(options.json), found.record())
    if options.html:
        write_hacked_page(Path(options.html), found)
    return 0
