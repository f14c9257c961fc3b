"""Comparison of the claims of results/claims.toml with the run in data/: python -m pipeline.workflow.compare_claims."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.measured_baselines import BASELINE_DESCRIPTIONS
from pipeline.analysis.method_claims import ClaimResult, MethodClaim, check_claim
from pipeline.analysis.results import add_frozen_speakers, find_evaluations, read_results, read_results_json
from pipeline.analysis.selection import choose_all
from pipeline.config.load import load
from pipeline.config.overlays import identify_profile
from pipeline.config.schema import Params
from pipeline.errors import UserError
from pipeline.report.claim_tables import build_claims_table, compare_claims, list_resampled_points, read_claims
from pipeline.report.number_files import format_markdown
from pipeline.report.result_file import ImageResamples, PrintedTable
from pipeline.report.starts import CLAIMS_OVER_STARTS
from pipeline.report.table_captions import CLAIMS
from pipeline.report.tables import Table
from pipeline.runtime.checksums import CHECKSUMS
from pipeline.runtime.command import run_command
from pipeline.runtime.files import compute_sha256
from pipeline.workflow.nearest_record import NearestRecord, find_nearest_record


def check_profile_claims(root: Path) -> Table | None:
    """Return the claims about the profile, else the data set, checked on the run in data/; None without such claims.

    Raises UserError for missing or damaged results.
    """
    results, score = _check_claims(root)
    return build_claims_table(results, score) if results else None


def measure_claims() -> tuple[str, ImageResamples | None]:
    """Return the claims about the working folder's run as Markdown, and their differences in resamples of test images.

    The text is empty and the resamples are None where there are no claims. The resamples are None, too, for drawn
    data, of which each start has other images. Raises UserError as `check_profile_claims` does.
    """
    root = Path()
    results, score = _check_claims(root)
    if not results:
        return "", None
    text = format_markdown([build_claims_table(results, score)])
    if any(settings for _, settings in load(root / "params.yaml").draw):
        return text, None
    images = compute_sha256(root / "data" / "prepared" / CHECKSUMS)
    return text, ImageResamples(images=images, differences=[list_resampled_points(result) for result in results])


def _check_claims(root: Path) -> tuple[list[ClaimResult], str]:
    """Return the results of the claims about the run in data/, none without such claims, and the compared score."""
    data = root / "data"
    if not (all_claims := read_claims(root)):
        return [], ""
    params = load(root / "params.yaml")
    subjects = [_find_profile(root), read_results_json(data / "prepared" / "manifest.json")["dataset"]]
    if not (claims := select_claims(all_claims, params, subjects)):
        return [], ""
    evaluations = find_evaluations(data, params.methods)
    results = read_results(data / "sweep", evaluations, first=(params.report.control,), score=params.report.score)
    results = add_frozen_speakers(results, params.report.frozen_speakers)
    comparison, choices = compare_methods(results, params.report), choose_all(results, params.report)
    return [check_claim(claim, comparison, choices) for claim in claims], results.score


def select_claims(claims: Iterable[MethodClaim], params: Params, subjects: Iterable[str | None]) -> list[MethodClaim]:
    """Return the claims about the first of `subjects`, names of a profile and a data set, that has claims.

    A claim about a method that `params` do not have is left out; a claim about a method without a result stays.
    """
    methods = {*params.methods, *(f"frozen_{name}" for name in params.report.frozen_speakers), *BASELINE_DESCRIPTIONS}
    possible = [claim for claim in claims if {claim.more, claim.than} <= methods]
    return next(filter(None, ([claim for claim in possible if claim.applies_to(name)] for name in subjects)), [])


def _find_recorded_claims(record: NearestRecord | None) -> PrintedTable | None:
    """Return the recorded table of claims; None where there is none."""
    tables = record.result.tables if record else {}
    return tables.get(CLAIMS_OVER_STARTS) or tables.get(CLAIMS)


def _find_profile(root: Path) -> str | None:
    """Return the name of the profile that equals params.yaml; None if no profile does."""
    return identify_profile((root / "params.yaml").read_text(encoding="utf-8"), root / "profiles")


def main() -> int:
    """Print the comparison; return the exit status: 0, or 2 without a finished run or a claim about it."""

    def work() -> None:
        if (own_claims := check_profile_claims(Path())) is None:
            raise UserError(
                "results/claims.toml: expected a claim about this run's profile or data set and its methods, found "
                "none; add one, or run another profile"
            )
        record = find_nearest_record(Path())
        print(format_markdown([compare_claims(own_claims, _find_recorded_claims(record))]))
        print(record.describe() if record else "No recorded profile is similar to params.yaml.")

    return run_command("compare", work)


if __name__ == "__main__":
    sys.exit(main())
