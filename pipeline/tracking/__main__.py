"""`sync` sends the records in the spool; `send FOLDER` is started by a run for its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.tracking import sender
from pipeline.tracking.spool import SYNC, root


def main(arguments: Sequence[str]) -> int:
    """The exit status; 2 for any other arguments."""
    if list(arguments) == ["sync"]:
        return sender.sync(root() / "mlflow-spool")
    if len(arguments) == 2 and arguments[0] == "send":
        return sender.send_or_say_why(Path(arguments[1]))
    print(f"usage: {SYNC}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
