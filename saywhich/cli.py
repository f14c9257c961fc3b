"""The commands: saywhich caption, find, export, serve. Each says in `--help` what it does."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from pipeline.errors import UserError

# a module of saywhich/commands each: `add` gives its options to a parser, `run` takes them and gives the exit status
COMMANDS = {
    "caption": "say what makes each photo this one",
    "find": "find photos by words",
    "export": "write a trained model into a folder that works anywhere",
    "serve": "a page for photos of one's own, on this machine",
    "study": "let people judge captions, and read what they say",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status.

    0: done; 1: done, but for photos that could not be read; 2: a mistake of the user, told in one line; 130:
    interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser("saywhich", description=(sys.modules["saywhich"].__doc__ or "").splitlines()[0])
    several = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for name, about in COMMANDS.items():
        own = several.add_parser(name, help=about, description=about)
        if given[:1] == [name]:  # the others need not be imported
            import_module(f"saywhich.commands.{name}").add(own)
    options = parser.parse_args(given)
    try:
        status = int(import_module(f"saywhich.commands.{options.command}").run(options))
        sys.stdout.flush()
        return status
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # as of `saywhich caption FOLDER | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("saywhich: interrupted", file=sys.stderr)
        return 130
