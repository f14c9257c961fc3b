"""Commands of `saywhich`, one module each: `add` adds a command's options to a parser, and `run` runs the command."""

from __future__ import annotations

import argparse
from pathlib import Path

from saywhich.default_model import MODELS, choose_default_model


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """Add `--model` to a command's parser."""
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="folder of a trained model: data/models/METHOD, or written by saywhich export; default: the model in "
        f"{MODELS} with the highest R@1 (hard) on the validation split by the last judge of evaluate.judges",
    )


def choose_model_folder(options: argparse.Namespace) -> Path:
    """Return the folder that `--model` names, else the folder of the default model."""
    return choose_default_model() if options.model is None else Path(options.model)
