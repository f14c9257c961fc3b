"""saywhich bags FOLDER: groups of look-alike photos, on which captions and retrievers are tested."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.commands.judge import add_neighbours_option
from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("folder", metavar="FOLDER", help="the photos, in and below this folder")
    parser.add_argument("--size", type=int, default=5, metavar="N", help="photos in a bag; default: %(default)s")
    add_neighbours_option(parser, "a bag")
    parser.add_argument(
        "--min-cosine",
        type=float,
        default=0.0,
        metavar="COSINE",
        help="the minimum cosine of a bag's first photo with the others, −1 … 1; default: %(default)s",
    )
    parser.add_argument(
        "--max-bags",
        type=int,
        metavar="N",
        help="the largest number of bags; the bags with the highest minimum cosine are kept; default: all",
    )
    parser.add_argument("--json", metavar="OUT", help="write the bags, near-duplicates and counts to OUT, too")
    parser.add_argument("--galleries", metavar="OUT", help="write the bags for saywhich judge --galleries, too")
    parser.add_argument("--html", metavar="OUT", help="write a contact sheet to OUT, too")


def run(options: Namespace) -> int:
    """Form and print the bags, in descending order of their minimum cosine, and write the requested files."""
    import saywhich
    from pipeline.errors import escape_line
    from saywhich.judging.score_files import write_json

    check_outputs(options.json, options.galleries, options.html)
    bags = saywhich.bags(
        options.folder,
        size=options.size,
        neighbours=options.neighbours,
        min_cosine=options.min_cosine,
        max_bags=options.max_bags,
    )
    lines = (
        "\t".join([f"{bag.cosines[-1]:.3f}", *(escape_line(bags.name(photo)) for photo in bag.photos)])
        for bag in bags.bags
    )
    print_lines([bags.summary, *lines])
    if options.json:
        write_json(Path(options.json), bags.record())
    if options.galleries:
        write_json(Path(options.galleries), dict(bags.galleries))
    if options.html:
        from saywhich.bagging.bag_page import write_bag_page

        write_bag_page(Path(options.html), bags)
    return 0
