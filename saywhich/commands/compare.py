"""saywhich compare A B …: paired differences between captions A and B, with intervals and verdicts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.commands.judge import add_judging, collect_judge_arguments, list_inputs, print_notes
from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "captions", nargs="+", metavar="CAPTIONS", help="two or more caption files; each is compared with the first"
    )
    add_judging(parser)
    parser.add_argument(
        "--rewarded-by",
        action="append",
        metavar="NAME",
        help="a judge that rewarded the training or shares the reward's encoder, by its name in --judge or the table",
    )


def run(options: Namespace) -> int:
    """Print the tables, write the files, and return 0; notes about the inputs are lines on stderr."""
    import saywhich
    from saywhich.judging.comparison_tables import format_comparison_lines, make_comparison_record, write_differences
    from saywhich.judging.score_files import write_json

    check_outputs(options.json, options.csv, options.html, inputs=[*options.captions, *list_inputs(options)])
    comparison = saywhich.compare(
        options.captions, options.images, rewarded_by=options.rewarded_by or (), **collect_judge_arguments(options)
    )
    print_notes(comparison.judgement.notes)
    print_lines(format_comparison_lines(comparison))
    if options.json:
        write_json(Path(options.json), make_comparison_record(comparison))
    if options.csv:
        write_differences(Path(options.csv), comparison)
    if options.html:
        from saywhich.judging.judged_page import write_judged_page

        write_judged_page(Path(options.html), comparison.judgement, comparison)
    return 0
