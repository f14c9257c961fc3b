"""The model that commands use where no model is named."""

import shutil
from pathlib import Path

import pytest
from saywhich_world import make_model

from pipeline.runtime.checksums import serialise_with_checksum, write_checksums
from saywhich.cli import main
from saywhich.default_model import rank_models


def write_evaluation(data: Path, name: str, val: tuple[float, float], test: float) -> None:
    """Write an evaluation with two judges; `val` holds R@1 (hard) by the own listener and by the last judge."""

    def make_metrics(*recalls: float) -> dict[str, object]:
        hard = [{"galleries": {"neighbourhood": {"R@1": recall}}} for recall in recalls]
        return {"judges": dict(zip(("own", "judge"), hard, strict=True))}

    folder = data / "evaluation" / name
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(
        serialise_with_checksum({"val": make_metrics(*val), "test": make_metrics(test, test)})
    )


@pytest.fixture
def data(repository, tmp_path, monkeypatch) -> Path:
    """Return a data folder with four models; on the validation split, `luo` is the best by the last judge."""
    shutil.copytree(repository, tmp_path / "data", ignore=shutil.ignore_patterns("models"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for seed, name in enumerate(("luo", "mle", "new", "psst_multinomial")):
        make_model(tmp_path / "data", name, seed, with_digests=name == "luo")
    write_evaluation(tmp_path / "data", "luo", (30.0, 50.0), test=20.0)
    write_evaluation(tmp_path / "data", "mle", (40.0, 45.0), test=40.0)
    write_evaluation(tmp_path / "data", "psst_multinomial", (60.0, 43.0), test=60.0)
    return tmp_path / "data"


def test_the_model_with_the_highest_recall_by_the_independent_judge_is_the_default(data, capsys):
    assert [path.name for path in rank_models()] == ["luo", "mle", "psst_multinomial", "new"]
    assert main(["caption", str(data / "images/0.png")]) == 0
    default = capsys.readouterr()
    line = "model: data/models/luo, the best of 4: R@1 (hard) 50.0 by an independent judge\n"
    assert default.err == line
    assert main(["caption", str(data / "images/0.png"), "--model", "data/models/luo"]) == 0
    assert capsys.readouterr().out == default.out
    assert main(["find", "a dog", str(data / "images"), "--top", "1"]) == 0
    assert capsys.readouterr().err == line


def test_a_model_of_another_profile_or_with_a_damaged_evaluation_ranks_lower(data):
    (data / "evaluation/mle/metrics.json").write_text("{}")
    assert [path.name for path in rank_models()] == ["luo", "psst_multinomial", "mle", "new"]
    vocabulary = data / "prepared/vocabulary.json"
    vocabulary.write_text(vocabulary.read_text().replace("boat", "goat"))
    write_checksums(data / "prepared")
    assert [path.name for path in rank_models()] == ["psst_multinomial", "mle", "new", "luo"]


def test_no_trained_model_is_reported_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jpg").touch()
    assert main(["caption", "a.jpg"]) == 2
    assert capsys.readouterr().err == (
        "data/models: no trained model; train one (make repro), or name one with --model\n"
    )
