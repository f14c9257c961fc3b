"""Training with rewards of a fixed retriever, from params.yaml alone, on drawn scenes for one epoch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from dvc.repo import Repo
from safetensors.torch import load_file, save_file
from stage_runs import enter_copy, run_stage, run_stages
from test_workflow import set_parameter
from toy_world import ROOT, make_toy_params

from pipeline.data.prepared import PreparedData
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.runtime.checksums import CHECKSUMS, write_checksums
from pipeline.training.loop import Training
from pipeline.workflow.dependencies import write_code_digests

METHODS = ("wtf", "rl", "rl_unidirectional", "wtf_rl", "scst_discriminator", "scst_grammar", "psst_wtf")
WITH_LAMBDA = {"psst_wtf": {"lambda": 0.01, "rho": 0.5}}


def make_params() -> dict:
    params = make_toy_params()
    listener = params["pretrain"]["listener"]
    params["pretrain"]["retriever"] = listener | {"seed": 7, "objective": "infonce", "collapse_recovery": None}
    params["pretrain"]["reward_judge"] = listener | {"seed": 8, "collapse_recovery": None}
    params["retriever"] = {
        "model": "retriever",
        "speaker": "speaker",
        "judge": "reward_judge",
        "temperature": 0.05,
        "hard_negative_ranks": [1, 3],
        "hidden_dims": [24, 16],
        "beam": 3,
        "optimisation": {"epochs": 2, "batch": 6, "learning_rate": 0.01},
    }
    params["methods"] = {
        "mle": {"from": "likelihood", "speaker": "speaker"},
        **{name: {"from": "wtf_rl", "speaker": "speaker", **WITH_LAMBDA.get(name, {})} for name in METHODS},
    }
    params["sweep"]["grid"] = {"wtf_rl": {"alpha": [0.5]}}
    params["report"] |= {"frozen_speakers": []}
    params["evaluate"] |= {"no_repeat_ngram_size": 2}
    return params


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory) -> Path:
    """Return a folder with prepared data, pretrained agents and reward models."""
    folder = tmp_path_factory.mktemp("rewarded")
    return run_stages(
        folder,
        make_params(),
        ("draw", "--dataset", "scenes"),
        ("prepare",),
        ("features",),
        *(("pretrain", "--role", role) for role in ("listener", "speaker", "retriever", "reward_judge")),
        ("retriever",),
    )


@pytest.fixture
def folder(prepared_folder, tmp_path, monkeypatch) -> Path:
    """Copy the prepared folder for the test to change, and make the copy the working folder."""
    return enter_copy(prepared_folder, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_from_params_alone(folder, name):
    assert run_stage("train", "--method", name, "--out", "out") == 0
    logged = json.loads(Path("out/metrics.json").read_text())
    assert {"val/cider", "val/recall@10", "val/rewarded_recall@10", "val/judged_recall@10"} <= logged.keys()
    if name != "scst_grammar":
        assert 0 <= logged["discriminator/accuracy"] <= 1
        before = load_agent(Path("data/retriever/weights.safetensors"), "discriminator").state_dict()
        after = load_agent(Path("out/weights.safetensors"), "discriminator").state_dict()
        assert [key for key, value in after.items() if torch.equal(before[key], value)] == []


def test_the_heads_are_trained_and_recorded(prepared_folder):
    epochs = [json.loads(line) for line in (prepared_folder / "data/retriever/history.jsonl").read_text().splitlines()]
    assert [epoch["epoch"] for epoch in epochs] == [1, 2]
    assert epochs[1]["discriminator/loss"] < epochs[0]["discriminator/loss"]
    assert "grammar/accuracy" in epochs[0]


def test_hard_negatives_equal_a_brute_force_search(prepared_folder):
    images = load_file(prepared_folder / "data/retriever/images.safetensors")
    rows = PreparedData.load(prepared_folder / "data/prepared").rows("train").tolist()
    for image, found in enumerate(images["neighbours"].tolist()):
        cosines = {row: float(images["vectors"][image] @ images["vectors"][row]) for row in rows if row != image}
        ranked = sorted(cosines, key=cosines.__getitem__, reverse=True)
        for rank, row in zip((1, 3), found, strict=True):
            assert row != image
            assert cosines[row] == pytest.approx(cosines[ranked[rank - 1]], abs=1e-6)


@pytest.mark.parametrize("name", ["wtf_rl", "psst_wtf"])
def test_an_interrupted_run_resumes_to_the_same_bits(folder, name, monkeypatch):
    monkeypatch.setenv("SAYWHICH_CHECKPOINT_SECONDS", "0")
    options = ("--method", name, "--set", "train.optimisation.batch=4")
    assert run_stage("train", *options, "--out", "whole") == 0
    train_step, steps = Training.train_step, []

    def record_step(self, batch) -> None:
        steps.append(self.step)
        train_step(self, batch)

    def interrupt_third_step(self, batch) -> None:
        if len(steps) == 2:
            raise KeyboardInterrupt
        record_step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "train_step", interrupt_third_step)
        assert run_stage("train", *options, "--out", "resumed") == 130
        assert list(Path("data/checkpoints").glob("*/step-*"))
        patch.setattr(Training, "train_step", record_step)
        assert run_stage("train", *options, "--out", "resumed") == 0
    first, second = (Path(out, "weights.safetensors").read_bytes() for out in ("whole", "resumed"))
    assert first == second
    assert steps == [0, 1, 2, 3]  # the resumed run begins with the third step


def catch_training_error(capsys, *arguments: str) -> str:
    """Return the error of a training that must not begin."""
    capsys.readouterr()
    assert run_stage("train", "--method", "wtf_rl", "--out", "none", *arguments) == 2
    assert not Path("none").exists()
    message = capsys.readouterr().err.strip()
    assert "\n" not in message
    return message


def test_inconsistent_reward_models_are_reported_in_one_line_before_training(folder, capsys):
    # the files of the retriever come from other features, weights or settings, or are missing
    heads, images = Path("data/retriever/weights.safetensors"), Path("data/retriever/images.safetensors")
    settings, model = Path("data/retriever/settings.json"), Path("data/pretrained/retriever/weights.safetensors")
    checksums = settings.with_name(CHECKSUMS)
    contents = {path: path.read_bytes() for path in (heads, images, settings, model, checksums)}

    def restore_files() -> None:
        for path, content in contents.items():
            path.write_bytes(content)

    vectors = load_file(images)
    save_file(vectors | {"vectors": vectors["vectors"][:, :5].contiguous()}, images)
    write_checksums(images.parent)
    assert "the discriminator takes vectors of size 8, and the retriever's vectors have size 5" in catch_training_error(
        capsys
    )
    restore_files()
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"features": {"retriever": 1}}))
    write_checksums(images.parent)
    assert "its image vectors come from other features than data/features/main/features.h5" in catch_training_error(
        capsys
    )
    restore_files()
    listener = load_agent(model, "listener")
    with torch.no_grad():
        listener.image.bias += 1
    save_agents(model, {"listener": listener})
    assert "made with other weights of retriever; run the retriever stage again" in catch_training_error(capsys)
    model.unlink()
    assert "data/pretrained/retriever/weights.safetensors" in catch_training_error(capsys)
    restore_files()
    settings.write_text("null\n")
    write_checksums(images.parent)
    assert "made without a retriever; add the section retriever to params.yaml" in catch_training_error(capsys)
    shutil.rmtree(images.parent)
    assert "there are no reward models; run the retriever stage" in catch_training_error(capsys)
    set_parameter(folder, "retriever", to=None)
    assert "methods.wtf: its rewards need the section retriever; add the section" in catch_training_error(capsys)


@pytest.mark.parametrize("name", ["images.safetensors", "settings.json", "weights.safetensors"])
def test_a_damaged_file_of_the_retriever_is_named_and_nothing_is_trained(folder, capsys, name):
    path = Path("data/retriever", name)
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (flipped, whole[: middle + 1], b"", None):
        path.unlink() if content is None else path.write_bytes(content)
        message = catch_training_error(capsys)
        assert f"{path}: " in message
        assert "run the retriever stage again" in message


def test_too_large_ranks_of_hard_negatives_are_refused(folder, capsys):
    assert run_stage("retriever", "--set", "retriever.hard_negative_ranks=[99]") == 2
    assert (
        "retriever.hard_negative_ranks: expected ranks up to 17, the number of other training images; got 99"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_change_of_alpha_reruns_that_method_alone(folder):
    stages = ("retriever", "train@mle", "train@wtf", "train@wtf_rl")
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "stages", folder / "stages", ignore=shutil.ignore_patterns("__pycache__"))
    write_code_digests(json.loads((folder / "params.yaml").read_text()))
    for name in ("mle", "wtf", "wtf_rl"):
        assert run_stage("train", "--method", name) == 0
    with Repo.init(no_scm=True) as repo:
        for stage in stages:
            repo.commit(stage, force=True)
        assert repo.status(stages) == {}
    set_parameter(folder, "methods", "wtf_rl", "alpha", to=0.5)
    with Repo() as repo:
        assert set(repo.status(stages)) == {"train@wtf_rl"}
