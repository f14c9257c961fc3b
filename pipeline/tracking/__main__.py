"""Commands: `sync` sends the spool, `costs` prints the stages' costs, `view` prints the addresses of MLflow's pages.

`send` runs the sender, which a recorded run starts.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TextIO

from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.tracking import sender
from pipeline.tracking.costs import format_cost_report
from pipeline.tracking.runs_view import find_comparison_address, save_view
from pipeline.tracking.spool import SYNC, find_root, remove_secrets
from pipeline.tracking.tracker import connect, convert_errors

SERVER = "http://127.0.0.1:5000"  # address of the server that make ui starts


class SecretFilter(io.TextIOBase):
    """Stream that removes secrets from each text: MLflow and its HTTP client log addresses with credentials."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(remove_secrets(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status, 2 for an error that is reported in one line."""

    def work() -> int:
        if list(arguments) == ["sync"]:
            return sender.sync(find_root() / "mlflow-spool")
        if list(arguments) == ["costs"]:
            with convert_errors():
                print(format_cost_report())
            return 0
        if list(arguments) == ["view"]:
            with convert_errors():
                tracker = connect()
                print(f"The evaluations, with their settings and recalls: {SERVER}/{save_view(tracker)}")
                if address := find_comparison_address(tracker):
                    print(f"The last evaluations side by side: {SERVER}/{address}")
            return 0
        raise UserError(
            f"expected the command sync, costs or view, got {' '.join(arguments)!r}; run for example {SYNC}"
        )

    with redirect_stdout(SecretFilter(sys.stdout)), redirect_stderr(SecretFilter(sys.stderr)):
        if list(arguments) == ["send"]:
            sender.serve_spool(find_root() / "mlflow-spool")
            return 0
        return run_command("tracking", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
