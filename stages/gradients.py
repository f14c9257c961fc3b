"""Measurement of gradient estimators. This is a command, and not a DVC stage.

`python -m stages.gradients` measures every estimator against the exact gradient in enumerable worlds, without any data.
It writes gradients.json, .csv and .md, plane.png, claim.png and sha256.json into data/gradients. Later reports show
these results.

`python -m stages.gradients --trained data` measures estimators at the pretrained speaker of the run in data/. It
compares them with a gradient from at least 100,000 captions (--captions). It writes gradients.json and .md, plane.png
and sha256.json into data/gradients_scenes, which is named after the data set of the run.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.config.load import load
from pipeline.errors import UserError
from pipeline.report.drawing import draw_panels_png
from pipeline.runtime.checksums import write_checksums
from pipeline.runtime.command import run_command
from pipeline.runtime.files import write_atomically
from pipeline.tracking import recorder
from pipeline.workflow.stage import DATA


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the estimators, and return the exit status.

    The status is 0 for success, 2 for an error (one line on stderr), and 128 + signal after a request to end.
    """
    parser = argparse.ArgumentParser(prog="python -m stages.gradients", allow_abbrev=False)
    for name, description in (
        ("worlds", "random and pretrained worlds (without --trained)"),
        ("epochs", "epochs of pretraining (without --trained)"),
        ("rounds", "steps of estimators that cannot be enumerated; with --trained, of all estimators"),
        ("repeats", "timed steps (without --trained)"),
    ):
        parser.add_argument(f"--{name}", type=parse_positive_integer, metavar="N", help=description)
    parser.add_argument("--only", metavar="TEXT", default="", help="estimators whose name begins with this text")
    parser.add_argument("--trained", type=Path, metavar="DIR", help="the data folder of a run: measure on its speaker")
    parser.add_argument(
        "--captions",
        type=parse_positive_integer,
        metavar="N",
        default=100_000,
        help="captions of the reference gradient (with --trained)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder of the results")
    options = parser.parse_args(arguments)
    return run_command("gradients", partial(run_trained if options.trained else run, options))


def run(options: argparse.Namespace) -> None:
    """Measure the estimators, and write the results as numbers, tables and figures."""
    import torch

    from pipeline.gradients.estimator_candidates import ESTIMATORS
    from pipeline.gradients.observe import MeasurementEffort, measure_candidates
    from pipeline.gradients.report.gradient_tables import (
        build_claim_panels,
        build_gradients_tables,
        build_plane_panels,
        format_gradients_csv,
        read_gradients,
    )
    from pipeline.report.number_files import format_markdown

    out = options.out or DATA / "gradients"
    torch.set_num_threads(1)  # the worlds are too small for threads to help
    values = {f.name: getattr(options, f.name, None) for f in fields(MeasurementEffort)}
    candidates = select_candidates(ESTIMATORS, options.only)
    out.mkdir(parents=True, exist_ok=True)  # fails here, and not after the measurement
    effort = MeasurementEffort(**{name: value for name, value in values.items() if value is not None})
    with recorder.record_run("gradients", asdict(effort)) as record:
        measurements = measure_candidates(candidates, effort, partial(print, flush=True, file=sys.stderr))
        write_atomically(out / "gradients.json", json.dumps(measurements, indent=1) + "\n")
        results = read_gradients(out / "gradients.json")
        write_atomically(out / "gradients.csv", format_gradients_csv(results))
        write_atomically(out / "plane.png", draw_panels_png(build_plane_panels(results)))
        write_atomically(out / "claim.png", draw_panels_png(build_claim_panels(results)))
        tables = format_markdown(build_gradients_tables(results))
        write_atomically(out / "gradients.md", tables)
        write_checksums(out)
        for path in sorted(out.iterdir()):
            record.log_artifact(path)
    print(tables)


def run_trained(options: argparse.Namespace) -> None:
    """Measure the estimators at a trained run's pretrained speaker, and write numbers, a table and a figure."""
    import torch

    from pipeline.gradients.estimator_candidates import ESTIMATORS
    from pipeline.gradients.report.trained_gradients import build_trained_panels, build_trained_table
    from pipeline.gradients.trained import load_trained_world, measure_trained
    from pipeline.report.number_files import format_markdown

    torch.set_num_threads(1)
    candidates = select_candidates(ESTIMATORS, options.only)
    world, dataset = load_trained_world(options.trained)
    margin = load(options.trained.parent / "params.yaml").train.objective.margin
    out = options.out or DATA / f"gradients_{dataset}"
    out.mkdir(parents=True, exist_ok=True)  # fails here, and not after the measurement
    print_line, steps = partial(print, flush=True, file=sys.stderr), options.rounds or 100
    with recorder.record_run(out.name, {"captions": options.captions, "steps": steps}) as record:
        measurements = measure_trained(world, margin, candidates, print_line, options.captions, steps=steps)
        write_atomically(out / "gradients.json", json.dumps(measurements, indent=1) + "\n")
        write_atomically(out / "plane.png", draw_panels_png(build_trained_panels(measurements)))
        table = format_markdown([build_trained_table(measurements)])
        write_atomically(out / "gradients.md", table)
        write_checksums(out)
        for path in sorted(out.iterdir()):
            record.log_artifact(path)
    print(table)


def select_candidates(candidates: Sequence[Any], prefix: str) -> list[Any]:
    """Return the candidates whose name starts with `prefix`. Raises UserError where no name does."""
    selection = [candidate for candidate in candidates if candidate.name.startswith(prefix)]
    if not selection:
        names = ", ".join(dict.fromkeys(candidate.name for candidate in candidates))
        raise UserError(f"--only {prefix}: no such estimator; there are {names}; give the beginning of one")
    return selection


def parse_positive_integer(text: str) -> int:
    """Parse a positive integer of the command line. Raises ArgumentTypeError for any other text."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of 1 or more, got {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())
