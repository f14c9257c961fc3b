"""Measure every gradient estimator exactly, in worlds small enough to enumerate: no stage of DVC's, it needs no data.

python -m stages.observatory → data/observatory: observatory.json, .csv and .md, plane.png and claim.png. The report
shows them from then on.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

from pipeline.errors import UserError
from pipeline.workflow.stage import DATA


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 done; 2 something is wrong, reported in one line; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m stages.observatory", allow_abbrev=False)
    for name, words in (
        ("worlds", "drawn and taught worlds"),
        ("epochs", "epochs of teaching"),
        ("rounds", "steps of what cannot be enumerated"),
        ("repeats", "timed steps"),
    ):
        parser.add_argument(f"--{name}", type=whole_number, metavar="N", help=words)
    parser.add_argument("--only", metavar="TEXT", default="", help="estimators whose name begins so")
    parser.add_argument("--out", type=Path, metavar="DIR", default=DATA / "observatory")
    options = parser.parse_args(arguments)
    try:
        run(options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("observatory: interrupted", file=sys.stderr)
        return 130
    return 0


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
    from pipeline.tracking import recorder

    torch.set_num_threads(1)  # smaller than what threads are worth
    given = {f.name: getattr(options, f.name, None) for f in fields(Effort)}
    candidates = [candidate for candidate in ESTIMATORS if candidate.name.startswith(options.only)]
    if not candidates:
        names = ", ".join(dict.fromkeys(candidate.name for candidate in ESTIMATORS))
        raise UserError(f"--only {options.only}: no such estimator; there are {names}")
    effort = Effort(**{name: value for name, value in given.items() if value is not None})
    with recorder.run("observatory", asdict(effort)) as record:
        found = observe(candidates, effort, partial(print, flush=True, file=sys.stderr))
        write_atomically(options.out / "observatory.json", json.dumps(found, indent=1) + "\n")
        observatory = read_observatory(options.out / "observatory.json")
        write_atomically(options.out / "observatory.csv", observatory_csv(observatory))
        write_atomically(options.out / "plane.png", panels_png(plane_panels(observatory)))
        write_atomically(options.out / "claim.png", panels_png(claim_panels(observatory)))
        tables = markdown(observatory_tables(observatory))
        write_atomically(options.out / "observatory.md", tables)
        for path in sorted(options.out.iterdir()):
            record.artifact(path)
    print(tables)


def whole_number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    sys.exit(main())
