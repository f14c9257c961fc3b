"""The page on speakers, followed in a copy of the project: the speaker is trained, and held to the plain unroll."""

import sys
from pathlib import Path

import pytest
from how_to_pages import ROOT, copy_project, follow, run_program
from toy_world import succeed, toy_params, written

LOADED = """
from pathlib import Path
from pipeline.config.load import load
from pipeline.models.agent_files import load_agent

print(load_agent(Path("data/gru/weights.safetensors"), "speaker").arguments)
for sizes in ("heads=2", "word_dim="):
    try:
        load(Path("params.yaml"), ["pretrain.speaker.architecture=gru", f"pretrain.speaker.{sizes}"])
    except Exception as error:
        print(error)
"""


def stage(folder: Path, name: str, *arguments: str) -> None:
    succeed(folder, sys.executable, "-m", f"stages.{name}", *arguments, SAYWHICH_TRACKING="off")


@pytest.mark.slow
def test_a_module_and_a_line_are_a_speaker(tmp_path):
    written(tmp_path, toy_params())
    touched = ["pipeline/models/architectures.py", "pipeline/models/gru_speaker.py"]
    assert follow("speaker", tmp_path) == touched
    stage(tmp_path, "draw", "--dataset", "scenes")
    stage(tmp_path, "prepare")
    stage(tmp_path, "features", "--features", "main")
    page = (ROOT / "docs/how_to/speaker.md").read_text(encoding="utf-8")
    pretrain, check = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    succeed(tmp_path, sys.executable, *pretrain.split()[1:], SAYWHICH_TRACKING="off")
    assert len((tmp_path / "data/gru/history.jsonl").read_text().splitlines()) == 1
    done = run_program(tmp_path, LOADED)
    assert done.returncode == 0, done.stderr
    arguments, *refused = done.stdout.splitlines()
    assert "'words': 8, 'hidden': 8" in arguments
    assert len(refused) == 2
    assert all("architecture gru takes the sizes hidden_dim, word_dim, and no other" in line for line in refused)
    copy_project(tmp_path, ["benchmarks", "tests", "pyproject.toml"])
    passed = succeed(tmp_path, sys.executable, *check.split()[1:]).partition("[100%]")[0]
    assert passed.count(".") > 40
    assert "s" not in passed
