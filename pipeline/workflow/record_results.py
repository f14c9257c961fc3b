"""Recording of the last run of a profile as results/NAME.json: python -m pipeline.workflow.record_results NAME."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.overlays import profile_text
from pipeline.errors import UserError
from pipeline.report.documents import figures_of
from pipeline.report.recording import write_record
from pipeline.runtime.command import run_command
from pipeline.workflow.compare_claims import claims_text


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 0 written; 2 there is nothing of that name to record, reported in one line."""

    def work() -> None:
        if len(arguments) != 1:
            raise UserError(
                "usage: python -m pipeline.workflow.record_results PROFILE | observatory | benchmarks, or any @MACHINE"
            )
        print(write_record(Path(), arguments[0], figures_of(Path(), arguments[0]), profile_text, claims_text))

    return run_command("record", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
