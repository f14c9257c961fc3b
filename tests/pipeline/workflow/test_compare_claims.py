"""Selection of the claims about a run, and the nearest recorded profile."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.analysis.method_claims import ClaimResult, MethodClaim
from pipeline.config.load import load
from pipeline.config.overlays import compose_profile_text, set_start
from pipeline.report.claim_tables import read_claims
from pipeline.report.result_file import ImageResamples
from pipeline.workflow import compare_claims
from pipeline.workflow.compare_claims import check_profile_claims, main, select_claims
from pipeline.workflow.nearest_record import find_nearest_record

ROOT = Path(__file__).parents[3]


def test_claims_about_scenes_do_not_apply_to_dialogs(tmp_path, monkeypatch, capsys):
    for name in ("results", "profiles", "data/prepared"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "results/claims.toml", tmp_path / "results")
    (tmp_path / "params.yaml").write_text(compose_profile_text("dialog", ROOT / "profiles"))
    (tmp_path / "data/prepared/manifest.json").write_text(json.dumps({"dataset": "scenes"}))
    assert check_profile_claims(tmp_path) is None
    monkeypatch.chdir(tmp_path)
    assert main() == 2
    assert (
        "expected a claim about this run's profile or data set and its methods, found none" in capsys.readouterr().err
    )


def test_claims_about_methods_that_a_profile_does_not_have_are_left_out(tmp_path):
    (tmp_path / "params.yaml").write_text(compose_profile_text("scenes", ROOT / "profiles"))
    all_claims, params = read_claims(ROOT), load(tmp_path / "params.yaml")
    scenes_claims = [claim for claim in all_claims if claim.data == "scenes" or "scenes" in tuple(claim.data)]
    # claims are selected with or without results
    assert select_claims(all_claims, params, ["scenes_other", "scenes"]) == scenes_claims
    del params.methods["luo"]
    found = select_claims(all_claims, params, ["scenes_other", "scenes"])
    assert found == [claim for claim in scenes_claims if "luo" not in (claim.more, claim.than)]
    assert {claim.than for claim in found} == {"mle", "st_multinomial", "template", "human"}


@pytest.mark.parametrize(("profile", "shared"), [("flickr8k", True), ("scenes", False)])
def test_claims_have_resamples_where_all_starts_have_the_same_images(tmp_path, monkeypatch, profile, shared):
    # each start of scenes draws different images
    recall = MethodClaim(statement="PSST has higher recall", data=profile, more="a", than="b", judge="own")
    results = [
        ClaimResult(recall, "chosen λ", 1.0, (0.0, 2.0), resampled=np.array([1.04, -0.04, 2.0])),
        ClaimResult(recall.model_copy(update={"judge": None}), "chosen λ", 0.01, resampled=np.array([0.0118])),
        ClaimResult(recall, "equal CIDEr", reason="no equal CIDEr"),
    ]
    (tmp_path / "data" / "prepared").mkdir(parents=True)
    (tmp_path / "data" / "prepared" / "sha256.json").write_text("{}")
    (tmp_path / "params.yaml").write_text(compose_profile_text(profile, ROOT / "profiles"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare_claims, "_check_claims", lambda root: (results, "R@1 (hard)"))
    text, resamples = compare_claims.measure_claims()
    assert "| PSST has higher recall | R@1 (hard) own |" in text
    digest = hashlib.sha256(b"{}").hexdigest()
    expected = ImageResamples(images=digest, differences=[[1.0, 0.0, 2.0], [1.2], None])
    assert resamples == (expected if shared else None)


RESULT = {"command": "c", "commit": "a", "date": "d", "machine": "m", "seeds": [1], "tables": {}}


def test_the_nearest_recorded_profile_is_named_with_the_differences(tmp_path):
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    (tmp_path / "results").mkdir()
    text = compose_profile_text("scenes", ROOT / "profiles")
    (tmp_path / "params.yaml").write_text(set_start(text.replace("  beam: 2", "  beam: 5"), 4))
    assert find_nearest_record(tmp_path) is None
    for name in ("scenes", "films"):
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(RESULT))
    found = find_nearest_record(tmp_path)
    assert found is not None
    assert found.describe() == "Recorded: the profile scenes, results/scenes.json; params.yaml differs in: beam: 5."
