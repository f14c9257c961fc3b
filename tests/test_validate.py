"""Errors that `validate` reports before any training, each in one line."""

import hashlib
import shutil
from pathlib import Path
from unittest.mock import ANY

import pytest
import yaml
from whole_profiles import load_profile

from pipeline.config.name_checks import CHECKED
from stages.validate import main

PG_SPIDER = {"from": "spider", "speaker": "speaker"}


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_validate(capsys: pytest.CaptureFixture[str], **sections: object) -> tuple[int, str]:
    """Run `validate` on the scenes profile with these sections; return the exit status and the lines on stderr."""
    Path("params.yaml").write_text(yaml.safe_dump(load_profile("scenes") | sections))
    return main(), capsys.readouterr().err


@pytest.fixture
def no_parser(monkeypatch) -> None:
    monkeypatch.setattr("pipeline.metrics.java.PARSER", ("not-there.jar",))


def test_a_profile_is_valid_and_its_digests_are_written(capsys):
    assert run_validate(capsys) == (0, "")
    shutil.rmtree("data")
    assert main(["--check"]) == 0
    assert not Path("data").exists()
    assert main() == 0
    assert Path("data/code/train/luo.sha256").is_file()


def test_a_checked_file_is_checked_again_only_after_a_change(monkeypatch, capsys):
    assert run_validate(capsys, rho=1) == (2, ANY)
    monkeypatch.setenv(CHECKED, hashlib.sha256(Path("params.yaml").read_bytes()).hexdigest())
    assert main(["--check"]) == 2, "--check always checks"
    assert main() == 0
    assert run_validate(capsys, rho=2) == (2, ANY)


@pytest.mark.usefixtures("no_parser")
@pytest.mark.parametrize(
    ("block", "grid"),
    [
        ({**PG_SPIDER, "reward": "spice"}, {}),
        ({**PG_SPIDER, "reward": {"CIDEr": 1, "SPICE": 2}}, {}),
        ({**PG_SPIDER, "reward": "cider"}, {"pg_spider": {"reward": ["cider", "spider"]}}),
    ],
)
def test_a_spice_reward_without_its_parser_is_reported_in_one_line(capsys, block, grid):
    status, line = run_validate(capsys, methods={"pg_spider": block}, sweep={"seeds": [1], "grid": grid})
    assert status == 2
    assert line.startswith("params.yaml: methods.pg_spider.reward: SPICE needs not-there.jar in pycocoevalcap; fetch")
    assert line.count("\n") == 1
    assert not Path("data").exists()


@pytest.mark.usefixtures("no_parser")
@pytest.mark.parametrize(("metrics", "lines"), [(["SPICE", "CIDEr"], 1), (["CIDEr"], 0)])
def test_spice_as_a_metric_is_left_out_with_a_line(capsys, metrics, lines):
    status, printed = run_validate(capsys, evaluate=load_profile("scenes")["evaluate"] | {"metrics": metrics})
    assert (status, printed.count("\n")) == (0, lines)
    assert printed.startswith("validate: evaluate.metrics: SPICE needs") == bool(lines)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"methods": {"x": {"from": "lou"}}}, "methods.x.from"),
        ({"methods": {"x y": {"from": "luo"}}}, "names consist of letters"),
        ({"methods": ["luo"]}, "must be a mapping of names"),
    ],
)
def test_a_mistake_is_reported_in_one_line(capsys, sections, line):
    status, printed = run_validate(capsys, **sections)
    assert (status, printed.count("\n")) == (2, 1)
    assert line in printed


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ({"rho": 1.5}, "methods.psst_multinomial.rho = 1.5 is not allowed: a number from 0 to 1"),
        ({"lamda": 0.1}, "unknown key methods.psst_multinomial.lamda = 0.1; did you mean lambda?"),
        ({"speaker": "spaeker"}, "methods.psst_multinomial.speaker"),
    ],
)
def test_an_option_of_a_method_is_checked_before_anything_runs(capsys, method, line):
    methods = load_profile("scenes")["methods"]
    methods["psst_multinomial"] |= method
    status, printed = run_validate(capsys, methods=methods)
    assert (status, printed.count("\n")) == (2, 1)
    assert line in printed
    assert not Path("data").exists()


def test_a_method_names_its_speaker(capsys):
    methods = load_profile("scenes")["methods"]
    del methods["luo"]["speaker"]
    line = "params.yaml: methods.luo.speaker is missing: name a speaker of pretrain\n"
    assert run_validate(capsys, methods=methods) == (2, line)


@pytest.mark.parametrize("section", ["methods", "sweep", "evaluate"])
def test_a_section_that_is_no_mapping_is_reported_in_one_line(capsys, section):
    for value in (None, 3, "text"):
        status, printed = run_validate(capsys, **{section: value})
        assert (status, printed.count("\n")) == (2, 1)
        assert printed.startswith("params.yaml: ")
