"""The file of claims, and its table beside the recorded results."""

from pathlib import Path

import pytest

from pipeline.analysis.method_claims import ClaimResult, MethodClaim
from pipeline.errors import UserError
from pipeline.report.claim_tables import build_claims_table, compare_claims, read_claims
from pipeline.report.number_files import format_markdown
from pipeline.report.recording import iterate_tables

CLAIM = MethodClaim(statement="a beats b", data="toy", more="a", than="b", judge="own")
OTHER = MethodClaim(statement="a beats c", data="toy", more="a", than="c", judge="judge", at="chosen λ", score="R@10")


def make_table(value):
    found = [
        ClaimResult(CLAIM, "CIDEr 0.800", value, (value - 1, value + 1), {1: value - 0.5, 2: value + 0.5}, "≥"),
        ClaimResult(OTHER, "chosen λ", reason="c was not measured"),
    ]
    return build_claims_table(found, "R@1 (hard)")


def test_the_projects_own_claims_can_be_read():
    claims = read_claims(Path(__file__).parents[3])
    assert all(any(claim.applies_to(data) for claim in claims) for data in ("scenes", "flickr8k", "flickr8k_wtf"))
    assert len({(claim.statement, claim.data, claim.judge) for claim in claims}) == len(claims)


def test_a_claim_with_an_unknown_key_is_reported_and_a_missing_file_has_no_claims(tmp_path):
    (tmp_path / "results").mkdir()
    assert read_claims(tmp_path) == []
    (tmp_path / "results" / "claims.toml").write_text(
        '[[claim]]\nstatement = "so"\ndata = "toy"\nmore = "a"\nthan = "b"\nless = "a"\n'
    )
    with pytest.raises(UserError, match=r"claims\.toml: claim 0\.less: Extra inputs are not permitted"):
        read_claims(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[[claim]]\nstatement = "\xff"\n', "not UTF-8; save it as UTF-8 text"),
        (b'[[claims]]\nstatement = "so"\n', r"expected tables \[\[claim\]\] only, found claims; rename or remove it"),
        (b'[claim]\nstatement = "so"\n', "claim: Input should be a valid list"),
    ],
)
def test_a_file_of_another_form_is_reported(tmp_path, content, message):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "claims.toml").write_bytes(content)
    with pytest.raises(UserError, match=rf"claims\.toml: {message}"):
        read_claims(tmp_path)


def test_recorded_results_are_shown_beside_measured_results():
    recorded = dict(iterate_tables(format_markdown([make_table(3.0)])))["Claims"]
    assert recorded.rows[0][1:] == [
        "R@1 (hard) own", "CIDEr 0.800", "2 × 1", "≥+3.0 [+2.0, +4.0]", "+2.5, +3.5", "holds",
    ]  # fmt: skip
    assert recorded.rows[1][4:] == ["–", "–", "open: c was not measured"]
    compared = compare_claims(make_table(-2.0), recorded)
    assert compared.rows[0][3:] == ["≥+3.0 [+2.0, +4.0]", "≥−2.0 [−3.0, −1.0]", "holds", "open"]
    unmeasured = ClaimResult(CLAIM.model_copy(update={"at": "chosen λ"}), "chosen λ", reason="a was not measured")
    twins = build_claims_table([ClaimResult(CLAIM, "CIDEr 0.800", reason="no result"), unmeasured], "R@1 (hard)")
    recorded = dict(iterate_tables(format_markdown([twins])))["Claims"]
    assert [row[5] for row in compare_claims(twins, recorded).rows] == ["open: no result", "open: a was not measured"]
    assert compare_claims(make_table(-2.0), None).rows[0][3:6] == ["–", "≥−2.0 [−3.0, −1.0]", "–"]
