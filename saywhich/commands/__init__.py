"""The commands of `saywhich`, one module each: `add` adds its options to a parser, `run` takes them."""

from __future__ import annotations

import argparse

MODEL = "data/models/psst_multinomial"


def model_option(parser: argparse.ArgumentParser) -> None:
    """Add `--model` to a command's parser."""
    parser.add_argument(
        "--model",
        default=MODEL,
        metavar="DIR",
        help="a trained model, data/models/METHOD or a folder that was exported; default: %(default)s",
    )
