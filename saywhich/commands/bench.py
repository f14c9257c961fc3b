"""saywhich bench: a benchmark of newly drawn scenes, which no captioner was trained on.

saywhich bench make DIR             draw pictures into DIR, and write the facts into the key DIR.key beside it
saywhich bench score DIR ANSWERS    score captions of the pictures by these facts
"""

from __future__ import annotations

import secrets
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the steps `make` and `score` with their options."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP", title="steps")
    make = steps.add_parser("make", help="draw pictures for a captioner, and write the facts into a key")
    score = steps.add_parser("score", help="score captions of the pictures by the key")
    for step in (make, score):
        step.add_argument("folder", type=Path, metavar="DIR", help="the pictures, and images.parquet with their names")
        step.add_argument("--key", type=Path, metavar="FILE", help="the facts; keep it secret; default: DIR.key")
    make.add_argument("--images", type=int, default=800, metavar="N", help="a multiple of 8; default: %(default)s")
    make.add_argument(
        "--difficulty",
        type=int,
        default=3,
        metavar="1…4",
        help="from galleries whose scenes differ in most facts (1) to those that differ in one or two inconspicuous "
        "facts (4); default: %(default)s",
    )
    make.add_argument(
        "--secret", type=int, metavar="SEED", help="draw the benchmark of this number again; default: a new one"
    )
    score.add_argument("answers", type=Path, metavar="ANSWERS", help="captions, in any form that saywhich judge reads")
    score.add_argument("--json", type=Path, metavar="OUT", help="write all numbers to OUT, too")


def run(options: Namespace) -> int:
    """Make or score a benchmark; return 0."""
    key = options.key or options.folder.with_name(f"{options.folder.name}.key")
    if options.step == "make":
        from saywhich.drawn_benchmark.benchmark_folder import make_benchmark

        seed = secrets.randbits(63) if options.secret is None else options.secret
        make_benchmark(options.folder, key, seed, options.images, options.difficulty)
        print(f"{options.folder}: {options.images:,} pictures, for the captioner; images.parquet names them")
        print(f"{key}: the facts and the seed, for saywhich bench score; keep it from the captioner")
        return 0
    from saywhich.drawn_benchmark.benchmark_folder import read_benchmark
    from saywhich.drawn_benchmark.benchmark_scores import score_answers
    from saywhich.judging.score_files import write_json

    check_outputs(options.json, inputs=[options.answers, key])
    found = score_answers(read_benchmark(options.folder, key), options.folder, options.answers)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    print_lines(found.lines())
    if options.json:
        write_json(options.json, found.record())
    return 0
