"""saywhich study: human evaluation of captions, by the protocol of the PSST paper.

saywhich study                     write a page for each rater, a key, and files for Label Studio and Prolific
saywhich study read ANSWERS…       print the results of the answers
saywhich study raters 75 72        print the numbers of raters and pairs that distinguish two accuracies
"""

from __future__ import annotations

import math
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import fields
from pathlib import Path

from pipeline.errors import UserError, escape_line
from pipeline.study.design import StudyDesign

OUT = Path("data/study")


def add(parser: ArgumentParser) -> None:
    """Add the options of making a study, and of the steps `read` and `raters`."""
    default = StudyDesign()
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="the data folder of a finished run"
    )
    parser.add_argument(
        "--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="the parameters of that run"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="DIR", help="the folder to write; default: %(default)s"
    )
    parser.add_argument("--send", metavar="URL", help="the address to which pages also send answers by POST")
    for name, text in (
        ("pairs", "the largest number of pairs of similar images, and of images in the naturalness task"),
        ("raters", "the number of raters of each question"),
        ("rounds", "the largest number of rounds of one rater, besides the qualification"),
    ):
        help_ = f"{text}; default: %(default)s"
        parser.add_argument(f"--{name}", type=_parse_count, default=getattr(default, name), metavar="N", help=help_)
    parser.add_argument(
        "--seed", type=_parse_seed, default=default.seed, metavar="N", help="the seed of random choices; default: 0"
    )
    parser.add_argument(
        "--methods",
        type=_parse_names,
        default=(),
        metavar="A,B",
        help="the methods; default: those of the paper that were run, else all but the control and pretrained",
    )
    parser.add_argument("--reference", metavar="NAME", help="the reference method of the naturalness task")
    parser.add_argument(
        "--cider",
        type=_parse_finite,
        metavar="X",
        help="in the retrieval task, compare settings nearest to this validation CIDEr",
    )
    parser.add_argument(
        "--score",
        type=_parse_finite,
        metavar="PERCENT",
        help="in the naturalness task, compare settings nearest to this validation recall",
    )
    steps = parser.add_subparsers(dest="step", title="steps")
    read = steps.add_parser("read", help="print the results of the answers as Markdown")
    read.add_argument(
        "answers", type=Path, nargs="+", help="files saved by pages, Label Studio's export, or folders of them"
    )
    read.add_argument("--study", type=Path, default=OUT, metavar="DIR", help="the study's folder; default: %(default)s")
    raters = steps.add_parser("raters", help="print the numbers of raters and pairs that are needed")
    raters.add_argument(
        "accuracies",
        type=_parse_percentage,
        nargs=2,
        metavar="PERCENT",
        help="the accuracies of the majority votes of two methods",
    )
    raters.add_argument(
        "--voters",
        type=_parse_count,
        default=default.raters,
        metavar="N",
        help="raters in each of these majority votes",
    )
    # this option has no default, since a default would replace a number given before the step
    raters.add_argument("--pairs", type=_parse_count, default=SUPPRESS, metavar="N", help=f"default: {default.pairs}")
    raters.add_argument(
        "--correlation",
        type=_parse_share,
        default=0.0,
        metavar="X",
        help="the intraclass correlation of two votes, which `read` prints",
    )


def run(options: Namespace) -> int:
    """Make a study, or run the given step; return 0."""
    if options.step == "read":
        _print_results(options)
    elif options.step == "raters":
        _print_plans(options)
    else:
        _make_study(options)
    return 0


def _make_study(options: Namespace) -> None:
    from pipeline.analysis.results import find_evaluations, read_results
    from pipeline.config.data_schema import MAIN
    from pipeline.config.load import load
    from pipeline.data.feature_store import FeatureStore
    from pipeline.data.prepared import PreparedData
    from pipeline.slices.slice_reports import REPORT
    from pipeline.study.make import make_study

    params, data = load(options.params), options.data
    if params.prepare.images is None:
        raise UserError(f"{options.params}: prepare.images is null, but raters need pictures; set their folder")
    results = read_results(data / "sweep", find_evaluations(data, params.methods), score=params.report.score)
    if any(results.has(*kind.metric) for kind in REPORT.kinds):
        raise UserError(f"{data}: expected evaluated captions, found other results; give the data of a captioning run")
    store = FeatureStore(data / "features" / MAIN)
    if store.manifest.get("frames") is not None:
        raise UserError(f"{data}: expected still images, found films; give the data of a run on still images")
    sheets = make_study(
        results,
        PreparedData.load(data / "prepared"),
        store,
        Path(params.prepare.root) / params.prepare.images,
        options.out,
        StudyDesign(**{each.name: getattr(options, each.name) for each in fields(StudyDesign)}),
        params.report.control,
        options.send,
    )
    for line in (
        f"{len(sheets)} pages, one for each rater: {options.out / 'pages'}",
        f"Label Studio: {options.out / 'label_studio'}; Prolific: {options.out / 'prolific.csv'}",
        f"Raters must not get {options.out / 'key.json'}. Put the files that they save into {options.out / 'answers'}",
    ):
        print(escape_line(line))


def _print_results(options: Namespace) -> None:
    from pipeline.report.number_files import format_markdown
    from pipeline.study.study_tables import build_study_tables

    tables = build_study_tables(options.study, options.answers)
    if not tables:
        raise UserError(
            f"{', '.join(map(str, options.answers))}: no answers that count; give the files that raters saved"
        )
    print("\n".join(map(escape_line, format_markdown(tables).split("\n"))), end="")


def _print_plans(options: Namespace) -> None:
    from pipeline.report.tables import format_markdown_table
    from pipeline.study.planning import LEVEL, POWER, compute_power, make_plans

    first, second = options.accuracies
    if first == second:
        raise UserError("raters: the two accuracies are equal; give two different accuracies")
    head = ["raters a pair", "majority right, %", "the other method, %", "pairs", "votes"]
    rows = [
        [str(plan.raters), *(f"{100 * accuracy:.1f}" for accuracy in plan.accuracies), str(plan.pairs), str(plan.votes)]
        for plan in make_plans(first, second, options.voters, options.correlation)
    ]
    print(format_markdown_table(head, rows, [True] * len(head)))
    print(f"\nWith so many pairs, McNemar's test (p < {LEVEL}) detects the difference in {POWER:.0%} of studies.")
    share = f"{compute_power(first, second, options.pairs):.0%}"
    print(f"With {options.pairs} pairs and {options.voters} raters a pair, the test detects the difference in {share}.")


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is no whole number of 1 or more")
    return int(text)


def _parse_seed(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text} is no whole number of 0 or more")
    return int(text)


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _parse_percentage(text: str) -> float:
    value = _parse_number(text.rstrip("%"))
    if not 50 < value < 100:
        raise ArgumentTypeError(f"{text} is no percentage above 50 (chance) and below 100")
    return value / 100


def _parse_share(text: str) -> float:
    value = _parse_number(text)
    if not 0 <= value < 1:
        raise ArgumentTypeError(f"{text} is no number from 0 to less than 1")
    return value


def _parse_finite(text: str) -> float:
    value = _parse_number(text)
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text} is no finite number, such as 0.9")
    return value


def _parse_number(text: str) -> float:
    """Return the number that `text` states, or NaN for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan
