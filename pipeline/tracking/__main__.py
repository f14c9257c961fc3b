"""`sync` sends what waits in the spool, `costs` says what stages took; `send` is what a run starts if nobody sends."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TextIO

from pipeline.errors import UserError
from pipeline.runtime.command import finish
from pipeline.tracking import sender
from pipeline.tracking.spool import SYNC, root, without_secrets


class Discreet(io.TextIOBase):
    """A stream that passes lines on without secrets: MLflow and its transport write addresses to their logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(without_secrets(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()


def main(arguments: Sequence[str]) -> int:
    """The exit status; 2 for any other arguments."""

    def work() -> int:
        if list(arguments) == ["sync"]:
            return sender.sync(root() / "mlflow-spool")
        if list(arguments) == ["costs"]:
            from pipeline.tracking.costs import page

            print(page())
            return 0
        raise UserError(f"usage: {SYNC} | costs")

    with redirect_stdout(Discreet(sys.stdout)), redirect_stderr(Discreet(sys.stderr)):
        if list(arguments) == ["send"]:
            sender.serve(root() / "mlflow-spool")
            return 0
        return finish("tracking", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
