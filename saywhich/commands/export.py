"""saywhich export MODEL DIR: write a model into a folder that works on any machine."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipeline.errors import escape_line, summarise_error


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a trained model, such as data/models/psst_multinomial, or a pretrained captioner, hub/OWNER/NAME or a "
        "folder",
    )
    parser.add_argument("out", metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--push", metavar="NAME", help="upload the folder to this repository of the Hugging Face hub, too"
    )


def run(options: Namespace) -> int:
    """Export the model, log a trained model to MLflow, and upload it with --push; return 0.

    A model is logged where MLflow's address is set, or the model is below `data` in the current folder.
    SAYWHICH_TRACKING=off disables MLflow. An error of MLflow is printed in a line on stderr.
    """
    from saywhich.pretrained.pretrained_export import export_pretrained, is_pretrained

    out = Path(options.out)
    if is_pretrained(options.model):
        export_pretrained(options.model, out)
        _print_size(out, "--speaker")
    else:
        _export_trained(Path(options.model), out)
    if options.push is not None:
        from saywhich.publishing import push_folder

        print(escape_line(push_folder(out, options.push)))
    return 0


def _export_trained(folder: Path, out: Path) -> None:
    from saywhich.exporting import export_model

    model = export_model(folder, out)
    _print_size(out, "--model")
    if os.environ.get("SAYWHICH_TRACKING") != "off" and _is_logged(folder):
        from saywhich.mlflow_logging import log_to_mlflow

        try:
            print(escape_line(f"MLflow: {log_to_mlflow(out, str(model.files.description['name']))}"))
        except Exception as error:  # any error of the server, the database or the transport
            print(
                escape_line(f"not logged to MLflow ({summarise_error(error)}); the folder is complete"), file=sys.stderr
            )


def _print_size(out: Path, option: str) -> None:
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(escape_line(f"{out}: {size / 1e6:.1f} MB; saywhich caption {option} {out} PHOTO"))


def _is_logged(model: Path) -> bool:
    """Return whether MLflow's address is set, or the model is below `data` in the current folder, as in a repository.

    Without an address, a missing database of MLflow is created in the current folder.
    """
    return "MLFLOW_TRACKING_URI" in os.environ or Path("data").resolve() in model.resolve().parents
