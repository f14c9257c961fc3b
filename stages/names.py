"""Check the names in params.yaml before they become paths and commands; every other stage waits for it.

python -m stages.names → data/names.txt, which always says the same, so that nothing is made again for it.
"""

import sys
from pathlib import Path

from pipeline.config.names import named_mapping
from pipeline.runtime.command import finish
from pipeline.runtime.files import write_atomically


def main() -> int:
    """The exit status; 2 for a name that is not allowed."""

    def work() -> None:
        named_mapping()
        write_atomically(Path("data/names.txt"), "checked\n")

    return finish("names", work)


if __name__ == "__main__":
    sys.exit(main())
