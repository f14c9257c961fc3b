"""Measure every gradient estimator exactly, in worlds small enough to enumerate: no stage of DVC's, it needs no data.

python -m stages.observatory → data/observatory: observatory.json, .csv and .md, plane.png and claim.png. The report
shows them from then on.

python -m stages.observatory --trained data → data/observatory_scenes, or of another data set: the same estimators
before the trained speaker of the run in data/, compared with a gradient of 100,000 captions.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.runtime.command import finish
from pipeline.workflow.stage import DATA


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 done; 2 something is wrong, reported in one line; 128 + signal where asked to end."""
    parser = argparse.ArgumentParser(prog="python -m stages.observatory", allow_abbrev=False)
    for name, words in (
        ("worlds", "drawn and taught worlds"),
        ("epochs", "epochs of teaching"),
        ("rounds", "steps of what cannot be enumerated"),
        ("repeats", "timed steps"),
    ):
        parser.add_argument(f"--{name}", type=whole_number, metavar="N", help=words)
    parser.add_argument("--only", metavar="TEXT", default="", help="estimators whose name begins so")
    parser.add_argument("--trained", type=Path, metavar="DIR", help="the data/ of a run: measure before its speaker")
    parser.add_argument("--captions", type=whole_number, metavar="N", default=100_000, help="of the true gradient")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    return finish("observatory", partial(run_trained if options.trained else run, options))


def run(options: argparse.Namespace) -> None:
    """Measure, and write what was found as numbers, tables and figures."""
    import torch

    from pipeline.observatory.candidates import ESTIMATORS
    from pipeline.observatory.observe import Effort, observe
    from pipeline.report.drawing import panels_png
    from pipeline.report.export import markdown
    from pipeline.report.gradients import (
        claim_panels,
        observatory_csv,
        observatory_tables,
        plane_panels,
        read_observatory,
    )
    from pipeline.runtime.files import write_atomically
    from pipeline.runtime.seal import seal
    from pipeline.tracking import recorder

    out = options.out or DATA / "observatory"
    torch.set_num_threads(1)  # smaller than what threads are worth
    given = {f.name: getattr(options, f.name, None) for f in fields(Effort)}
    candidates = named(ESTIMATORS, options.only)
    effort = Effort(**{name: value for name, value in given.items() if value is not None})
    with recorder.run("observatory", asdict(effort)) as record:
        found = observe(candidates, effort, partial(print, flush=True, file=sys.stderr))
        write_atomically(out / "observatory.json", json.dumps(found, indent=1) + "\n")
        observatory = read_observatory(out / "observatory.json")
        write_atomically(out / "observatory.csv", observatory_csv(observatory))
        write_atomically(out / "plane.png", panels_png(plane_panels(observatory)))
        write_atomically(out / "claim.png", panels_png(claim_panels(observatory)))
        tables = markdown(observatory_tables(observatory))
        write_atomically(out / "observatory.md", tables)
        seal(out)
        for path in sorted(out.iterdir()):
            record.artifact(path)
    print(tables)


def run_trained(options: argparse.Namespace) -> None:
    """Measure before a trained speaker, and write numbers, a table and a figure."""
    import torch

    from pipeline.observatory.candidates import ESTIMATORS
    from pipeline.observatory.trained import observe_trained
    from pipeline.report.drawing import panels_png
    from pipeline.report.export import markdown
    from pipeline.report.trained_gradients import trained_panels, trained_table
    from pipeline.runtime.files import write_atomically
    from pipeline.runtime.seal import seal
    from pipeline.tracking import recorder
    from pipeline.workflow.build_observatory import trained_world

    torch.set_num_threads(1)
    world, dataset, margin = trained_world(options.trained)
    out = options.out or DATA / f"observatory_{dataset}"
    say, steps = partial(print, flush=True, file=sys.stderr), options.rounds or 100
    with recorder.run(out.name, {"captions": options.captions, "steps": steps}) as record:
        candidates = named(ESTIMATORS, options.only)
        found = observe_trained(world, margin, candidates, say, options.captions, steps=steps)
        write_atomically(out / "observatory.json", json.dumps(found, indent=1) + "\n")
        write_atomically(out / "plane.png", panels_png(trained_panels(found)))
        table = markdown([trained_table(found)])
        write_atomically(out / "observatory.md", table)
        seal(out)
        for path in sorted(out.iterdir()):
            record.artifact(path)
    print(table)


def named(candidates: Sequence[Any], beginning: str) -> list[Any]:
    """Those whose name begins so; UserError where there is none."""
    found = [candidate for candidate in candidates if candidate.name.startswith(beginning)]
    if not found:
        names = ", ".join(dict.fromkeys(candidate.name for candidate in candidates))
        raise UserError(f"--only {beginning}: no such estimator; there are {names}")
    return found


def whole_number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    sys.exit(main())
