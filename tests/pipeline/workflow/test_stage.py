"""The common part of stages: folders, errors in one line, and the key of checkpoints."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.runtime.files import write_atomically
from pipeline.workflow import dependencies
from pipeline.workflow.stage import main

ROOT = Path(__file__).parents[3]


@pytest.fixture
def workplace(params, monkeypatch):
    """Return the working folder, with params.yaml and dvc.yaml."""
    monkeypatch.chdir(params.parent)
    (params.parent / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    return params.parent


def build_stage(name, *arguments):
    stages = []
    assert main(name, stages.append, arguments) == 0
    return stages[0]


def test_a_stage_has_its_instance_seed_and_folders(workplace):
    stage = build_stage("train", "--method", "luo")
    assert (stage.title, stage.instance, stage.seed) == ("train@luo", "luo", 1)
    assert (stage.out, stage.root) == (Path("data/models/luo"), Path("data"))
    changed = build_stage("train", "--method", "luo", "--seed", "3", "--set", "methods.luo.lambda=0.5", "--out", "x")
    assert (changed.seed, changed.settings.methods["luo"]["lambda"], changed.out) == (3, 0.5, Path("x"))
    assert build_stage("evaluate", "--method", "luo").model == Path("data/models/luo")
    assert build_stage("evaluate", "--method", "luo", "--model", "y").model == Path("y")
    assert build_stage("pretrain", "--role", "judge").out == Path("data/pretrained/judge")
    assert build_stage("draw", "--dataset", "scenes").out == Path("data/raw/scenes")
    assert build_stage("prepare").out == Path("data/prepared")


def test_a_user_error_is_reported_in_one_line_on_stderr_with_status_2(workplace, capsys):
    def fail(stage):
        raise AssertionError("the stage ran")

    assert main("train", fail, ["--method", "luo", "--set", "train.objective.cross_entropy_weight=-1"]) == 2
    line = capsys.readouterr().err
    assert line.endswith("train.objective.cross_entropy_weight = -1 is not allowed: a number, at least 0\n")
    assert line.count("\n") == 1
    assert main("train", fail, ["--method", "lou"]) == 2
    assert "did you mean luo?" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["soon", "", "nan", "-1"])
def test_invalid_seconds_between_checkpoints_are_reported_in_one_line(workplace, monkeypatch, capsys, seconds):
    def run(stage):
        print(stage.checkpoint_seconds)

    assert main("train", run, ["--method", "luo"]) == 0
    monkeypatch.setenv("SAYWHICH_CHECKPOINT_SECONDS", seconds)
    assert main("train", run, ["--method", "luo"]) == 2
    expected = f"SAYWHICH_CHECKPOINT_SECONDS={seconds}: must be a number of seconds, 0 or more\n"
    assert capsys.readouterr() == ("60.0\n", expected)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_reported_in_one_line(workplace, capsys):
    def run(stage):
        with open("/dev/full", "w") as file:
            file.write("x")

    assert main("prepare", run, []) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("prepare: the disk is full (")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "out/x"), "permission is missing"),
        (OSError(errno.EROFS, "Read-only file system", "out/x"), "the file system is read-only"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "out/x"), "your quota of the disk is used up"),
    ],
)
def test_an_unwritable_folder_is_reported_in_one_line(workplace, capsys, error, message):
    def run(stage):
        raise error

    assert main("prepare", run, []) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"prepare: {message} ([Errno ")
    assert "out/x" in printed
    assert printed.count("\n") == 1


def test_an_output_folder_that_is_a_file_is_reported_in_one_line(workplace, capsys):
    (workplace / "taken").touch()

    def run(stage):
        write_atomically(stage.out / "x", "x")

    assert main("prepare", run, ["--out", "taken"]) == 2
    assert capsys.readouterr().err.startswith("prepare: expected a folder, found a file")
    assert main("prepare", run, ["--out", "taken/below"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("prepare: expected a folder, found a file")
    assert printed.count("\n") == 1


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("request_", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stage_reports_a_request_to_end(workplace, capsys, request_, status):
    def run(stage):
        os.kill(os.getpid(), request_)

    assert main("prepare", run, []) == status
    assert capsys.readouterr().err == f"prepare: ended by {request_.name}; run the same command to continue\n"


def test_an_interrupted_stage_ends_with_130(workplace, capsys):
    def interrupt(stage):
        raise KeyboardInterrupt

    assert main("prepare", interrupt, []) == 130
    assert capsys.readouterr().err == "prepare: interrupted\n"


def test_a_wrong_parameter_is_reported_before_torch_is_imported(workplace):
    code = (
        "import sys; from pipeline.workflow.stage import main\n"
        "status = main('train', lambda stage: None, ['--method', 'luo', '--set', 'train.optimisation.epochs=-1'])\n"
        "sys.exit(status if 'torch' not in sys.modules else 99)"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1


def test_the_key_of_a_stage_changes_with_its_parameters_inputs_and_instance_but_not_with_its_folder(workplace):
    inputs = workplace / "inputs"
    inputs.mkdir()
    (inputs / "a").write_text("1")

    def compute_key(*arguments):
        return build_stage("train", *arguments).compute_key([inputs])

    first = compute_key("--method", "luo")
    assert compute_key("--method", "luo") == first
    assert compute_key("--method", "luo", "--out", "elsewhere") == first
    assert compute_key("--method", "luo", "--set", "methods.mle.lambda=0.5") == first
    changed_keys = [compute_key("--method", "mle"), compute_key("--method", "luo", "--seed", "2")]
    changed_keys.append(compute_key("--method", "luo", "--set", "methods.luo.lambda=0.5"))
    (inputs / "a").write_text("2")
    changed_keys.append(compute_key("--method", "luo"))
    (inputs / "a").rename(inputs / "b")
    changed_keys.append(compute_key("--method", "luo"))
    assert len({first, *changed_keys}) == 6


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("pipeline/estimators/surrogate.py", True),
        ("pipeline/estimators/credit.py", False),
        ("pipeline/methods/luo.py", True),
        ("stages/train.py", True),
        ("pipeline/methods/psst.py", False),
        ("pipeline/worlds/scenes/drawing/animals.py", False),
        ("pipeline/report/report_page.py", False),
        ("stages/evaluate.py", False),
    ],
)
def test_the_key_of_a_stage_changes_with_the_code_that_it_imports(workplace, monkeypatch, path, changes):
    for package in ("pipeline", "stages"):
        shutil.copytree(ROOT / package, workplace / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(dependencies, "ROOT", workplace / "code")
    key = build_stage("train", "--method", "luo").compute_key([])
    assert (workplace / "code" / path).exists()
    with open(workplace / "code" / path, "a") as file:
        file.write("# another line\n")
    assert (build_stage("train", "--method", "luo").compute_key([]) != key) == changes


def test_a_key_depends_on_a_models_content_not_its_path(workplace):
    for name in ("x", "y", "z"):
        (workplace / name).mkdir()
        (workplace / name / "weights").write_text("1" if name != "z" else "2")

    def compute_key(folder):
        return build_stage("evaluate", "--method", "luo", "--model", folder).compute_key([Path(folder, "weights")])

    assert compute_key("x") == compute_key("y") != compute_key("z")


def test_a_missing_input_is_reported(workplace):
    with pytest.raises(UserError, match="nowhere: no such input"):
        build_stage("train", "--method", "luo").compute_key([Path("nowhere")])
