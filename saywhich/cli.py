"""The commands: saywhich caption, find, export, serve. Each says in `--help` what it does."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from pipeline.errors import UserError
from pipeline.runtime.command import refusal

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

    0: done; 1: done, but for photos that could not be read; 2: a mistake of the user, or what the system refuses, told
    in one line; 130: interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal has not is shown as its number
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            print(end="", flush=True)  # what cannot be written is told here, and not when Python ends
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # as of `saywhich caption FOLDER | head`
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        print(refusal("saywhich", error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("saywhich: interrupted", file=sys.stderr)
        return 130


def _run(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("saywhich", description=(sys.modules["saywhich"].__doc__ or "").splitlines()[0])
    several = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for name, about in COMMANDS.items():
        own = several.add_parser(name, help=about, description=about)
        if given[:1] == [name]:  # the others need not be imported
            import_module(f"saywhich.commands.{name}").add(own)
    options = parser.parse_args(given)
    return int(import_module(f"saywhich.commands.{options.command}").run(options))


def _drop_output() -> None:
    """Drop what could not be written to the standard output: Python would try again when it ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
