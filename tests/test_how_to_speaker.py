"""The page on speakers, followed in a copy of the project: its speaker is trained, and passes the tests of speakers."""

import sys
from pathlib import Path

import pytest
from how_to_pages import ROOT, apply_page, copy_project, run_program
from toy_world import make_toy_params, succeed, write_repository

LOAD_SPEAKER = """
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


def run_stage(folder: Path, name: str, *arguments: str) -> None:
    succeed(folder, sys.executable, "-m", f"stages.{name}", *arguments, SAYWHICH_TRACKING="off")


@pytest.mark.slow
def test_the_page_adds_a_working_speaker(tmp_path):
    write_repository(tmp_path, make_toy_params())
    files = ["pipeline/models/architectures.py", "pipeline/models/gru_speaker.py"]
    assert apply_page("speaker", tmp_path) == files
    run_stage(tmp_path, "draw", "--dataset", "scenes")
    run_stage(tmp_path, "prepare")
    run_stage(tmp_path, "features", "--features", "main")
    page = (ROOT / "docs/how_to/speaker.md").read_text(encoding="utf-8")
    pretrain, check = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    succeed(tmp_path, sys.executable, *pretrain.split()[1:], SAYWHICH_TRACKING="off")
    assert len((tmp_path / "data/gru/history.jsonl").read_text().splitlines()) == 1
    done = run_program(tmp_path, LOAD_SPEAKER)
    assert done.returncode == 0, done.stderr
    arguments, *errors = done.stdout.splitlines()
    assert "'words': 8, 'hidden': 8" in arguments
    assert len(errors) == 2
    assert all("architecture gru takes the sizes hidden_dim, word_dim, and no other" in line for line in errors)
    copy_project(tmp_path, ["benchmarks", "tests", "pyproject.toml"])
    progress = succeed(tmp_path, sys.executable, *check.split()[1:]).partition("[100%]")[0]
    assert progress.count(".") > 40
    assert "s" not in progress
