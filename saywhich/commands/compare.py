"""saywhich compare A B …: whether captions B are better than captions A, by paired differences with intervals."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.commands.judge import add_judging, inputs_of, options_of, print_notes
from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "captions", nargs="+", metavar="CAPTIONS", help="two or more caption files; each against the first"
    )
    add_judging(parser)
    parser.add_argument(
        "--rewarded-by",
        action="append",
        metavar="NAME",
        help="a judge, as given or as the table shows it, that rewarded the training or shares its encoder",
    )


def run(options: Namespace) -> int:
    """Print the tables, write the files, and return 0; notes about the inputs are lines on stderr."""
    import saywhich
    from saywhich.judging.comparison_tables import comparison_lines, comparison_record, write_differences
    from saywhich.judging.score_files import write_json

    check_outputs(options.json, options.csv, options.html, inputs=[*options.captions, *inputs_of(options)])
    found = saywhich.compare(
        options.captions, options.images, rewarded_by=options.rewarded_by or (), **options_of(options)
    )
    print_notes(found.judgement.notes)
    print_lines(comparison_lines(found))
    if options.json:
        write_json(Path(options.json), comparison_record(found))
    if options.csv:
        write_differences(Path(options.csv), found)
    if options.html:
        from saywhich.judging.judged_page import write_judged_page

        write_judged_page(Path(options.html), found.judgement, found)
    return 0
