"""`make gradients` with a small effort: the stage measures, writes and prints."""

import json
import re

import pytest
from PIL import Image

from pipeline.gradients import observe
from pipeline.gradients import trained as gradients_of_a_run
from pipeline.gradients.gradient_world import draw_world
from stages.gradients import main

TINY = ["--worlds", "1", "--epochs", "5", "--rounds", "3", "--repeats", "1"]


@pytest.fixture(autouse=True)
def no_tracking(monkeypatch):
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")


def test_gradients_writes_numbers_tables_and_figures(tmp_path, capsys):
    assert main([*TINY, "--only", "PSST-Gumbel-Rao", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == (tmp_path / "gradients.md").read_text().strip()
    assert len(re.findall(r"\| PSST-Gumbel-Rao ~ +\|", printed.out)) == 5
    assert "world 1 of 1, hinge: PSST-Gumbel-Rao, rho 0.25" in printed.err
    content = json.loads((tmp_path / "gradients.json").read_text())
    assert content["effort"] == {"worlds": 1, "epochs": 5, "samples": [1, 4, 16], "rounds": 3, "repeats": 1}
    assert len(content["rows"]) == 5 * 3
    for name in ("plane.png", "claim.png"):
        with Image.open(tmp_path / name) as image:
            assert min(image.size) > 300


def test_invalid_inputs_are_reported_in_one_line(tmp_path, capsys):
    assert main([*TINY, "--only", "PST", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("--only PST: no such estimator; there are REINFORCE, no baseline")
    assert error.count("\n") == 1
    for wrong in ("0", "many"):
        with pytest.raises(SystemExit):
            main(["--worlds", wrong])
        assert f"--worlds: expected an integer of 1 or more, got '{wrong}'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", [[], ["--trained", "data"]])
def test_mistakes_are_reported_before_anything_is_measured(tmp_path, capsys, monkeypatch, data):
    def fail(*arguments, **options):
        raise AssertionError

    monkeypatch.setattr(observe, "measure_candidates", fail)
    monkeypatch.setattr(gradients_of_a_run, "measure_trained", fail)
    monkeypatch.setattr(gradients_of_a_run, "load_trained_world", lambda root: (None, "toy"))
    (tmp_path / "file").touch()
    assert main([*data, "--out", str(tmp_path / "file")]) == 2
    assert "expected a folder, found a file" in capsys.readouterr().err
    monkeypatch.setattr(gradients_of_a_run, "load_trained_world", fail)
    assert main([*data, "--only", "PST"]) == 2
    assert capsys.readouterr().err.startswith("--only PST: no such estimator")


def test_gradients_of_a_trained_speaker_writes_a_table_and_a_figure(tmp_path, capsys, monkeypatch):
    world = draw_world(2, 3, 2, 5)
    monkeypatch.setattr(gradients_of_a_run, "load_trained_world", lambda root: (world, "toy"))
    options = ["--captions", "640", "--rounds", "20", "--only", "ST-Multinomial"]
    assert main(["--trained", "data", *options, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == (tmp_path / "gradients.md").read_text().strip()
    assert "the gradient of 640 captions\nST-Multinomial\n" in printed.err
    (row,) = json.loads((tmp_path / "gradients.json").read_text())["rows"]
    assert row["name"] == "ST-Multinomial"
    with Image.open(tmp_path / "plane.png") as image:
        assert min(image.size) > 300


def test_a_missing_run_is_reported_in_one_line(tmp_path, capsys):
    assert main(["--trained", str(tmp_path)]) == 2
    missing = tmp_path / "pretrained/speaker/weights.safetensors"
    assert capsys.readouterr().err == f"{missing}: no such weights; run the stage that trains them first\n"
