"""Check of the names in params.yaml before they become paths and commands; every other stage depends on it.

python -m stages.names → data/names.txt. Its content never changes, so that no stage reruns because of it.
"""

import sys
from pathlib import Path

from pipeline.config.name_checks import read_checked_names
from pipeline.runtime.command import run_command
from pipeline.runtime.files import write_atomically


def main() -> int:
    """Return the exit status; 2 for a name that is not allowed."""

    def work() -> None:
        read_checked_names()
        write_atomically(Path("data/names.txt"), "checked\n")

    return run_command("names", work)


if __name__ == "__main__":
    sys.exit(main())
