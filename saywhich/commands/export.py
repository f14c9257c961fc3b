"""saywhich export MODEL DIR: a trained model as a folder that works on another machine with nothing else."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipeline.errors import one_line, reason


def add(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("model", metavar="MODEL", help="a trained model, such as data/models/psst_multinomial")
    parser.add_argument("out", metavar="DIR", help="the folder to write")


def run(options: Namespace) -> int:
    """Export it, and log it to the repository's MLflow; a server that is not there is a line on stderr."""
    from saywhich.export import export

    place, out = Path(options.model), Path(options.out)
    model = export(place, out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(one_line(f"{out}: {size / 1e6:.1f} MB; saywhich caption --model {out} PHOTO"))
    if os.environ.get("SAYWHICH_TRACKING") != "off" and _in_repository(place):
        from saywhich.logged import log

        try:
            print(one_line(f"MLflow: {log(out, str(model.place.description['name']))}"))
        except Exception as error:  # of the server, the database or the transport
            print(one_line(f"not logged to MLflow ({reason(error)}); the folder is complete"), file=sys.stderr)
    return 0


def _in_repository(model: Path) -> bool:
    """Whether this is run where the model was trained, or MLflow's address is known: its database is nowhere else."""
    return "MLFLOW_TRACKING_URI" in os.environ or Path.cwd() in model.resolve().parents
