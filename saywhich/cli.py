"""The command line: `saywhich caption`, `find`, `judge` and others; `--help` describes each."""

from __future__ import annotations

import argparse
import io
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from pipeline.errors import UserError, escape_line
from pipeline.runtime.command import describe_os_error
from pipeline.runtime.extras import explain_missing_extra
from pipeline.runtime.memory import explain_memory_error
from pipeline.runtime.signals import StopRequest, raise_requests
from saywhich.outputs import drop_output

# each command is a module of saywhich/commands: `add` adds its options to a parser, `run` takes them and returns the
# exit status
COMMANDS = {
    "caption": "caption photos, and distinguish each from others",
    "find": "retrieve photos by a text",
    "judge": "measure how distinctive captions are, by judges that did not generate them",
    "compare": "compare caption files by paired differences",
    "bags": "find groups of look-alike photos, on which captions are tested",
    "bench": "draw a new benchmark of scenes, and score captions of it",
    "hacked": "measure how much of a reward's gain independent judges confirm",
    "calibrate": "compare judges and metrics with people's ratings of captions",
    "export": "write a model into a folder that works on any machine",
    "serve": "serve a page for your photos on this machine",
    "study": "prepare a human study of captions, and analyse its answers",
}

MEMORY_REMEDY = "ask for fewer samples, beams or tokens, smaller batches, or a smaller model"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    The status is 0 after success, and where the reader of the output closes it. It is 1 if a photo could not be read,
    or its caption could not be written. It is 2 for an error, which is printed in one line. After a signal it is 128 +
    the signal's number: 130 for Ctrl-C and 143 for SIGTERM.

    Raises SystemExit for --help, and with 2 for a wrong option.
    """
    for stream in (sys.stdout, sys.stderr):
        # print a character that the terminal's encoding lacks as its escape sequence
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            with raise_requests(watch=False), explain_missing_extra(), explain_memory_error("saywhich", MEMORY_REMEDY):
                return _run_command(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            print(end="", flush=True)  # report a failed write here, not when Python exits
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # for example `saywhich caption FOLDER | head`
        drop_output()
        return 0
    except OSError as error:
        drop_output()
        print(describe_os_error("saywhich", error), file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        request = error.request if isinstance(error, StopRequest) else signal.SIGINT
        print(f"saywhich: ended by {request.name}", file=sys.stderr)
        return 128 + request


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the list of all options."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        self.exit(2, escape_line(f"{self.prog}: {message}; {self.prog} --help lists the options") + "\n")


def _run_command(arguments: Sequence[str]) -> int:
    doc = sys.modules["saywhich"].__doc__ or ""  # python -OO keeps no docstrings
    parser = OneLineParser("saywhich", description=doc.partition("\n")[0])
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for name, purpose in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=purpose, description=purpose)
        if arguments[:1] == [name]:  # import only the command that is run
            import_module(f"saywhich.commands.{name}").add(subparser)
    options = parser.parse_args(arguments)
    return int(import_module(f"saywhich.commands.{options.command}").run(options))
