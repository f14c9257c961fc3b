"""`saywhich study`: people judge captions, by the protocol of the PSST paper.

saywhich study                          write pages for raters, a key, and files for Label Studio and Prolific
saywhich study read ANSWERS…            what the answers say
saywhich study raters 75 72             how many pairs and raters tell two accuracies apart
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from pipeline.errors import UserError

OUT = Path("data/study")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 done; 2 a mistake of the user, told in one line."""
    given = list(sys.argv[1:] if argv is None else argv)
    commands = {"make": _make, "read": _read, "raters": _raters}
    if not given or (given[0] not in commands and given[0] not in ("-h", "--help")):
        given = ["make", *given]
    options = _parser().parse_args(given)
    try:
        commands[options.command](options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    from pipeline.study.design import Design

    parser = argparse.ArgumentParser(prog="saywhich study", description="People judge captions.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write pages for raters (the default)", allow_abbrev=False)
    make.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help="of a finished run")
    make.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="of that run")
    make.add_argument("--out", type=Path, default=OUT, metavar="DIR")
    make.add_argument("--send", metavar="URL", help="where pages send their answers by POST; without: raters save them")
    default = Design()
    for name, text in (
        ("pairs", "pairs of similar images"),
        ("raters", "of each question"),
        ("rounds", "of one rater, at most"),
        ("seed", "of all that is drawn at random"),
    ):
        value = getattr(default, name)
        make.add_argument(f"--{name}", type=_natural(name != "seed"), default=value, help=f"{text}; default {value}")
    make.add_argument("--methods", type=_names, default=(), metavar="A,B", help="default: the paper's that were run")
    make.add_argument("--reference", metavar="NAME", help="whose captions others are held against in naturalness")
    make.add_argument("--cider", type=float, help="validation CIDEr of the methods in the retrieval task")
    make.add_argument("--score", type=float, help="validation recall, in %%, of the methods in the naturalness task")
    read = commands.add_parser("read", help="what the answers say, as Markdown", allow_abbrev=False)
    read.add_argument(
        "answers", type=Path, nargs="+", help="what pages saved, Label Studio's export, or folders of both"
    )
    read.add_argument("--study", type=Path, default=OUT, metavar="DIR", help=f"default {OUT}")
    raters = commands.add_parser("raters", help="how many raters and pairs are needed", allow_abbrev=False)
    raters.add_argument("accuracies", type=_percent, nargs=2, metavar="PERCENT", help="of the majority, of two methods")
    raters.add_argument("--raters", type=_natural(True), default=default.raters, help="of a pair, with that majority")
    raters.add_argument("--pairs", type=_natural(True), default=default.pairs, help="for how sure a study of them is")
    raters.add_argument("--alike", type=_share, default=0.0, help="correlation of two votes on a pair, as read prints")
    return parser


def _make(options: argparse.Namespace) -> None:
    from pipeline.analysis.results import read_results
    from pipeline.config.data_schema import MAIN
    from pipeline.config.load import load
    from pipeline.data.feature_store import FeatureStore
    from pipeline.data.prepared import Prepared
    from pipeline.study.design import Design
    from pipeline.study.make import make_study

    params = load(options.params)
    if params.prepare.images is None:
        raise UserError(f"{options.params}: prepare.images is null, and raters must see pictures")
    data: Path = options.data
    folders = [data / "evaluation" / method for method in params.methods]
    evaluations = [folder for folder in folders if (folder / "metrics.json").exists()]
    results = read_results(data / "sweep", evaluations, score=params.report.score)
    if results.of_dialogs:
        raise UserError(f"{data}: answers in dialogs, not captions of images; a study needs captions")
    sheets = make_study(
        results,
        Prepared.load(data / "prepared"),
        FeatureStore(data / "features" / MAIN),
        Path(params.prepare.root) / params.prepare.images,
        options.out,
        Design(**{each.name: getattr(options, each.name) for each in fields(Design)}),
        params.report.control,
        options.send,
    )
    print(f"{len(sheets)} pages, one for each rater: {options.out / 'pages'}")
    print(f"Label Studio: {options.out / 'label_studio'}; Prolific: {options.out / 'prolific.csv'}")
    print(f"Not for raters: {options.out / 'key.json'}. Put what they save into {options.out / 'answers'}")


def _read(options: argparse.Namespace) -> None:
    from pipeline.report.export import markdown
    from pipeline.report.study_tables import study_tables

    tables = study_tables(options.study, options.answers)
    if not tables:
        raise UserError(f"{', '.join(map(str, options.answers))}: no votes that count")
    print(markdown(tables, ""))


def _raters(options: argparse.Namespace) -> None:
    from pipeline.report.tables import aligned
    from pipeline.study.planning import LEVEL, POWER, plans, power

    left, right = options.accuracies
    if left == right:
        raise UserError("two equal accuracies: no number of raters tells them apart")
    rows = [
        [str(p.raters), *(f"{100 * a:.1f}" for a in p.accuracies), str(p.pairs), str(p.votes)]
        for p in plans(left, right, options.raters, options.alike)
    ]
    head = ["raters a pair", "majority right, %", "the other, %", "pairs", "votes"]
    print(aligned(head, rows, [True] * len(head)))
    print()
    print(f"Pairs: with them McNemar's test (level {LEVEL}) finds the difference {POWER:.0%} of the times.")
    sure = power(left, right, options.pairs)
    print(f"With {options.pairs} pairs of {options.raters} raters it finds it {sure:.0%} of the times.")


def _natural(positive: bool):  # type: ignore[no-untyped-def]
    def number(text: str) -> int:
        value = int(text)
        if value < positive:
            raise argparse.ArgumentTypeError(f"{text} is less than {int(positive)}")
        return value

    return number


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _percent(text: str) -> float:
    value = float(text.rstrip("%"))
    if not 50 < value < 100:
        raise argparse.ArgumentTypeError(f"{text} is not between 50 (chance) and 100")
    return value / 100


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to less than 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
