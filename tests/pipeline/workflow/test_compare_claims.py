"""Which claims are about a run."""

import json
import shutil
from pathlib import Path

from pipeline.config.overlays import profile_text
from pipeline.workflow.compare_claims import claims_of

ROOT = Path(__file__).parents[3]


def test_claims_about_scenes_are_not_made_about_dialogs_on_them(tmp_path):
    for name in ("results", "profiles", "data/prepared"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "results/claims.toml", tmp_path / "results")
    (tmp_path / "params.yaml").write_text(profile_text("dialog", ROOT / "profiles"))
    (tmp_path / "data/prepared/manifest.json").write_text(json.dumps({"dataset": "scenes"}))
    assert claims_of(tmp_path) is None
