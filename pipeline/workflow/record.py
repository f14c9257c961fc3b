"""python -m pipeline.workflow.record NAME: results/NAME.json of what the last run of a profile left in data/."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.overlays import profile_text
from pipeline.errors import UserError
from pipeline.report.documents import figures_of
from pipeline.report.record import record
from pipeline.runtime.command import finish
from pipeline.workflow.compare import claims_text


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 written; 2 there is nothing of that name to be written, reported in one line."""

    def work() -> None:
        if len(arguments) != 1:
            raise UserError(
                "usage: python -m pipeline.workflow.record PROFILE | observatory | benchmarks, or any @MACHINE"
            )
        print(record(Path(), arguments[0], figures_of(Path(), arguments[0]), profile_text, claims_text))

    return finish("record", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
