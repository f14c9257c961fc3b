"""Recording of the tables in data/ as results/NAME.json: python -m pipeline.workflow.record_results NAME."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.overlays import compose_profile_text, set_start
from pipeline.config.reading import parse_yaml
from pipeline.errors import UserError
from pipeline.report.documents import list_figures
from pipeline.report.recording import COMMANDS, START, parse_start, write_record
from pipeline.report.result_file import locate_result_file
from pipeline.report.starts import read_starts, summarise_starts
from pipeline.runtime.command import run_command
from pipeline.runtime.files import write_atomically
from pipeline.workflow.compare_claims import measure_claims

IMAGE_FIGURES = ("along", "gallery", "hacked", "pairs")  # figures that show images of the data set


def _compose_parameters(name: str, folder: Path) -> str:
    """Return the text of the parameter file of a result file's profile and start."""
    return set_start(compose_profile_text(name.partition("@")[0], folder), parse_start(name))


def _check_no_photos(figures: Sequence[str], params: Path, profile: str) -> None:
    """Raise UserError for a figure with photos in a public document; drawn images are permitted."""
    images = sorted({*figures} & {*IMAGE_FIGURES})
    if images and not parse_yaml(params.read_text(encoding="utf-8"), str(params)).get("draw"):
        raise UserError(f"a document shows figure {images[0]} of {profile}: expected one without photos; remove it")


def main(arguments: Sequence[str]) -> int:
    """Record the run that the command line names; return the exit status: 0, or 2 for an error."""

    def work() -> None:
        if len(arguments) != 1:
            raise UserError(
                "usage: python -m pipeline.workflow.record_results PROFILE@startN | NAME | NAME@MACHINE; NAME is a "
                f"profile or one of {', '.join(COMMANDS)}"
            )
        root, name = Path(), arguments[0]
        start, profile = parse_start(name), START.sub(r"\1", name)
        is_last = start is None or start >= max(read_starts(root, profile), default=start)  # documents show this start
        figures = list_figures(root, profile) if is_last else []
        _check_no_photos(figures, root / "params.yaml", profile)
        print(write_record(root, name, figures, _compose_parameters, measure_claims))
        if start is not None:
            write_atomically(locate_result_file(root, profile), summarise_starts(read_starts(root, profile)).text())
            print(locate_result_file(root, profile))

    return run_command("record", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
