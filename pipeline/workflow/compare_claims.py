"""Comparison of the claims of results/claims.toml with the run in data/: python -m pipeline.workflow.compare_claims."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.measured_baselines import BASELINE_DESCRIPTIONS
from pipeline.analysis.method_claims import MethodClaim, check_claim
from pipeline.analysis.results import find_evaluations, read_results, read_results_json, with_frozen_speakers
from pipeline.analysis.selection import choose_all
from pipeline.config.load import load
from pipeline.config.overlays import Profiles, nearest_profile, profile_of
from pipeline.config.schema import Params
from pipeline.errors import UserError
from pipeline.report.claim_tables import CAPTION, claims_table, compare_claims, read_claims
from pipeline.report.number_files import markdown
from pipeline.report.result_file import PrintedTable, ResultFile, path_of, read_result
from pipeline.report.starts import CLAIMS_OVER_STARTS
from pipeline.report.tables import Table
from pipeline.runtime.command import run_command

MAX_DIFFERENCES = 20  # most lines of params.yaml that may differ from a recorded profile
MAX_NAMED = 3


def claims_of(root: Path) -> Table | None:
    """Return the claims about the profile, else the data set, checked on the run in data/; None if there are none."""
    data = root / "data"
    if not (all_claims := read_claims(root)):
        return None
    params = load(root / "params.yaml")
    subjects = [_profile(root), read_results_json(data / "prepared" / "manifest.json")["dataset"]]
    if not (claims := select_claims(all_claims, params, subjects)):
        return None
    evaluations = find_evaluations(data, params.methods)
    results = read_results(data / "sweep", evaluations, first=(params.report.control,), score=params.report.score)
    results = with_frozen_speakers(results, params.report.frozen_speakers)
    comparison, choices = compare_methods(results, params.report), choose_all(results, params.report)
    return claims_table([check_claim(claim, comparison, choices) for claim in claims], results.score)


def select_claims(claims: Iterable[MethodClaim], params: Params, subjects: Iterable[str | None]) -> list[MethodClaim]:
    """Return the claims about the first of the profile and the data set `subjects` that has any.

    A claim about a method that `params` do not have is left out; one about a method without a result stays.
    """
    known = {*params.methods, *(f"frozen_{name}" for name in params.report.frozen_speakers), *BASELINE_DESCRIPTIONS}
    fitting = [claim for claim in claims if {claim.more, claim.than} <= known]
    return next(filter(None, ([claim for claim in fitting if claim.applies_to(name)] for name in subjects)), [])


def claims_text() -> str:
    """Return the claims of the working folder's run as Markdown; an empty text where there are none."""
    table = claims_of(Path())
    return markdown([table]) if table else ""


@dataclass(frozen=True)
class NearestRecord:
    """The recorded profile that is nearest to params.yaml, and the lines of params.yaml that differ from it."""

    name: str
    result: ResultFile
    differing: Sequence[str]

    def describe(self) -> str:
        """Return one sentence on the recorded profile and the differences."""
        lines = [line.partition(" #")[0].strip() for line in self.differing]
        more = f" and {len(lines) - MAX_NAMED} more" if len(lines) > MAX_NAMED else ""
        other = f"; params.yaml differs in: {'; '.join(lines[:MAX_NAMED])}{more}" if lines else ""
        return f"Recorded: the profile {self.name}, results/{self.name}.json{other}."


def nearest_record(root: Path) -> NearestRecord | None:
    """Return the nearest recorded profile; None where none is recorded, or all differ in more than a few lines."""
    profiles = Profiles(root / "profiles")
    recorded = [name for name in profiles.names() if path_of(root, name).is_file()]
    if not recorded:
        return None
    text = (root / "params.yaml").read_text(encoding="utf-8")
    name, differing = nearest_profile(text, recorded, profiles)
    return None if len(differing) > MAX_DIFFERENCES else NearestRecord(name, read_result(root, name), differing)


def _recorded_claims(record: NearestRecord | None) -> PrintedTable | None:
    """Return the recorded table of claims; None where there is none."""
    tables = record.result.tables if record else {}
    return tables.get(CLAIMS_OVER_STARTS) or tables.get(CAPTION)


def _profile(root: Path) -> str | None:
    """Return the name of the profile that equals params.yaml; None where none does."""
    return profile_of((root / "params.yaml").read_text(encoding="utf-8"), root / "profiles")


def main() -> int:
    """Return the exit status: 0 printed; 2 no finished run, or no claim about it, reported in one line."""

    def work() -> None:
        if (own_claims := claims_of(Path())) is None:
            raise UserError("results/claims.toml: no claim about this data set")
        record = nearest_record(Path())
        print(markdown([compare_claims(own_claims, _recorded_claims(record))]))
        print(record.describe() if record else "Recorded: no profile that is near params.yaml.")

    return run_command("compare", work)


if __name__ == "__main__":
    sys.exit(main())
