"""`dvc` for `make repro`: a signal ends it at once, and its exit status names the signal that ended a stage.

python -m pipeline.workflow.run_dvc repro --single-item prepare

DVC itself ignores SIGINT while a stage runs. After the error line of a failed stage it logs an error of its own.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Sequence

from pipeline.runtime import signals
from pipeline.runtime.command import USER_ERROR


class StageErrorFilter(logging.Filter):
    """Filter of DVC's errors that keeps the exit status of a stage's command.

    The filter drops DVC's error where the stage has reported its error in a line: a user error, or a request to end.
    """

    status = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the status of a StageCmdFailedError among the causes of the logged error; return whether to log it."""
        from dvc.stage.exceptions import StageCmdFailedError

        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            if isinstance(error, StageCmdFailedError) and (match := re.search(r"exited with (-?\d+)$", str(error))):
                self.status = int(match[1])
            error = error.__cause__ or error.__context__
        return self.status != USER_ERROR and signals.find_request(self.status) is None


def main(arguments: Sequence[str]) -> int:
    """Run `dvc`; return its exit status, 2 for a stage's user error, or 128 + signal for a request that ended it."""
    from dvc.cli import main as dvc

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    error_filter, statuses = StageErrorFilter(), [1]
    logger = logging.getLogger("dvc.cli")
    logger.addFilter(error_filter)
    logger.setLevel(logging.ERROR)  # errors are logged with --quiet, too
    # DVC ignores SIGINT only if it runs in the main thread
    thread = threading.Thread(target=lambda: statuses.append(dvc(list(arguments))))
    thread.start()
    thread.join()
    if request := signals.find_request(error_filter.status):
        return 128 + request
    return USER_ERROR if error_filter.status == USER_ERROR else statuses[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
