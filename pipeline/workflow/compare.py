"""python -m pipeline.workflow.compare: which of the claims of results/claims.toml hold in the run that data/ holds."""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.analysis.claims import check
from pipeline.analysis.compare import compare
from pipeline.analysis.results import read_json, read_results, with_frozen_speakers
from pipeline.analysis.selection import choose_all
from pipeline.config.load import load
from pipeline.config.overlays import names, profile_text
from pipeline.errors import UserError
from pipeline.report.claims import CAPTION, claims_table, compared, read_claims
from pipeline.report.export import markdown
from pipeline.report.result_file import Printed, path_of, read_result
from pipeline.report.tables import Table
from pipeline.runtime.command import finish


def claims_of(root: Path) -> Table | None:
    """The claims about the profile, or else the data set, as the run in data/ has them; None where there is none."""
    data = root / "data"
    if not (claims := read_claims(root)):
        return None
    params = load(root / "params.yaml")
    methods = set(params.methods)  # of dialogs' none is in a claim about the scenes that they are about
    claims = [claim for claim in claims if {claim.more, claim.than} & methods]
    about = [_profile(root), read_json(data / "prepared" / "manifest.json")["dataset"]]
    claims = next(filter(None, ([claim for claim in claims if claim.about(name)] for name in about)), [])
    if not claims:
        return None
    folders = [data / "evaluation" / method for method in params.methods]
    evaluations = [folder for folder in folders if (folder / "metrics.json").exists()]
    results = read_results(data / "sweep", evaluations, first=(params.report.control,), score=params.report.score)
    results = with_frozen_speakers(results, params.report.frozen)
    comparison, choices = compare(results, params.report), choose_all(results, params.report)
    return claims_table([check(claim, comparison, choices) for claim in claims], results.score)


def claims_text() -> str:
    """Those of the working folder's run as Markdown; nothing where there are none."""
    table = claims_of(Path())
    return markdown([table]) if table else ""


def _recorded(root: Path) -> Printed | None:
    """The table of claims in the result file of the profile that params.yaml is; None where there is none."""
    name = _profile(root)
    return read_result(root, name).tables.get(CAPTION) if name and path_of(root, name).is_file() else None


def _profile(root: Path) -> str | None:
    """The profile that params.yaml is; None where it is somebody's own."""
    text, profiles = (root / "params.yaml").read_text(encoding="utf-8"), root / "profiles"
    return next((name for name in names(profiles) if profile_text(name, profiles) == text), None)


def main() -> int:
    """The exit status: 0 printed; 2 there is no finished run, or no claim about it, reported in one line."""

    def work() -> None:
        if (here := claims_of(Path())) is None:
            raise UserError("results/claims.toml: no claim about this data set")
        print(markdown([compared(here, _recorded(Path()))]))

    return finish("compare", work)


if __name__ == "__main__":
    sys.exit(main())
