"""The commands of `saywhich`, one module each: `add` adds its options to a parser, `run` takes them."""

from __future__ import annotations

import argparse
from pathlib import Path

from saywhich.default_model import MODELS, default_model


def model_option(parser: argparse.ArgumentParser) -> None:
    """Add `--model` to a command's parser."""
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="a trained model, data/models/METHOD or a folder that was exported; default: the model in "
        f"{MODELS} with the highest R@1 (hard) by the independent judge on the validation split",
    )


def model_folder(options: argparse.Namespace) -> Path:
    """Return the folder that `--model` names, or the default model."""
    return default_model() if options.model is None else Path(options.model)
