"""saywhich bench: a benchmark of newly drawn scenes, which no captioner was trained on.

saywhich bench make DIR             draw pictures into DIR, and write the facts into the key DIR.key beside it
saywhich bench score DIR ANSWERS    score captions of the pictures by these facts
"""

from __future__ import annotations

import secrets
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipeline.errors import UserError, escape_line
from saywhich.outputs import check_outputs, print_lines


def add(parser: ArgumentParser) -> None:
    """Add the steps `make` and `score` with their options."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP", title="steps")
    make = steps.add_parser("make", help="draw pictures for a captioner, and write their facts into a key file")
    score = steps.add_parser("score", help="score captions of the pictures by the facts in the key file")
    for step in (make, score):
        step.add_argument("folder", type=Path, metavar="DIR", help="the pictures, and images.parquet with their names")
        step.add_argument("--key", type=Path, metavar="FILE", help="the seed and the facts; secret; default: DIR.key")
    make.add_argument(
        "--images",
        type=int,
        default=800,
        metavar="N",
        help="number of pictures: a multiple of 8 from 16 to 8000; default: %(default)s",
    )
    make.add_argument(
        "--difficulty",
        type=int,
        default=3,
        metavar="1…4",
        help="facts that differ between two of a gallery's 8 scenes. 1: most; 2: one or two within each of 4 pairs, "
        "most between pairs; 3: one or two; 4: one or two, and all have equal colours and counts; default: %(default)s",
    )
    make.add_argument(
        "--secret", type=int, metavar="SEED", help="seed of the benchmark: 0 to 2^63 − 1; default: a random number"
    )
    score.add_argument("answers", type=Path, metavar="ANSWERS", help="captions, in any form that saywhich judge reads")
    score.add_argument("--json", type=Path, metavar="OUT", help="also write all numbers to the file OUT")


def run(options: Namespace) -> int:
    """Make or score a benchmark; return 0. Raises UserError where the folder is the root and --key is not given."""
    folder = options.folder.resolve() if options.folder.name in ("", "..") else options.folder
    if not folder.name and options.key is None:
        raise UserError(f"{folder}: has no name; give another folder, or --key FILE")
    key = options.key or folder.with_name(f"{folder.name}.key")
    if options.step == "make":
        from saywhich.drawn_benchmark.benchmark_folder import make_benchmark

        seed = secrets.randbits(63) if options.secret is None else options.secret
        make_benchmark(folder, key, seed, options.images, options.difficulty)
        print(
            escape_line(f"{options.folder}: {options.images:,} pictures, for the captioner; images.parquet names them")
        )
        print(escape_line(f"{key}: the facts and the seed, for saywhich bench score; keep it from the captioner"))
        return 0
    from saywhich.drawn_benchmark.benchmark_folder import INDEX, read_benchmark
    from saywhich.drawn_benchmark.benchmark_scores import score_answers
    from saywhich.judging.score_files import write_json

    check_outputs(options.json, inputs=[options.answers, key, folder / INDEX])
    scores = score_answers(read_benchmark(folder, key), folder, options.answers)
    for note in scores.notes:
        print(f"note: {note}", file=sys.stderr)
    print_lines(scores.lines())
    if options.json:
        write_json(options.json, scores.record())
    return 0
