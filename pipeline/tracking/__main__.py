"""`sync` sends what waits in the spool, `costs` says what stages took; `send` is what a run starts if nobody sends."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline.tracking import sender
from pipeline.tracking.spool import SYNC, root


def main(arguments: Sequence[str]) -> int:
    """The exit status; 2 for any other arguments."""
    if list(arguments) == ["sync"]:
        return sender.sync(root() / "mlflow-spool")
    if list(arguments) == ["send"]:
        sender.serve(root() / "mlflow-spool")
        return 0
    if list(arguments) == ["costs"]:
        from pipeline.tracking.costs import page

        print(page())
        return 0
    print(f"usage: {SYNC} | costs", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
