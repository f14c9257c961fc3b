"""`dvc` for `make repro`: a signal ends it at once, and its exit status names the signal that ended a stage.

python -m pipeline.workflow.run_dvc repro --single-item prepare

DVC itself ignores SIGINT while a stage runs, and reports only that a stage failed, whatever ended it.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Sequence

from pipeline.runtime import signals


class StageStatus(logging.Handler):
    """Log handler that keeps the exit status of a stage's command, from the error that DVC logs."""

    status = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the status of a StageCmdFailedError among the causes of the logged error."""
        from dvc.stage.exceptions import StageCmdFailedError

        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            if isinstance(error, StageCmdFailedError) and (match := re.search(r"exited with (-?\d+)$", str(error))):
                self.status = int(match[1])
            error = error.__cause__ or error.__context__


def main(arguments: Sequence[str]) -> int:
    """Return DVC's exit status, or 128 + signal where a request ended the command of a stage."""
    from dvc.cli import main as dvc

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    stage, statuses = StageStatus(), [1]
    logging.getLogger("dvc").addHandler(stage)
    logging.getLogger("dvc.cli").setLevel(logging.ERROR)  # errors are logged with --quiet, too
    # DVC's own signal handlers are ignored outside the main thread
    thread = threading.Thread(target=lambda: statuses.append(dvc(list(arguments))))
    thread.start()
    thread.join()
    request = signals.request_of(stage.status)
    return 128 + request if request else statuses[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
