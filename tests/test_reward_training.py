"""Trainings with text metrics as rewards: one epoch per stage on drawn scenes, with METEOR in its own process."""

import json
from pathlib import Path

import pytest
from stage_runs import run_stage, run_stages
from toy_world import make_toy_params

from pipeline.models.agent_files import load_agent

METHODS = {
    "pg_spider": {
        "from": "spider",
        "reward": {"CIDEr": 1.0, "METEOR": 5.0, "BLEU-4": 1.0},
        "rollouts": 1,
        "critic_first": 1,
    },
    "mixer": {"from": "mixer", "reward": "cider", "forced_tokens": 4, "decrement": 2},
    "luo_relax": {
        "from": "luo",
        "method": "luo",
        "lambda": 0.5,
        "train": {"objective": {"control_variate": "relax", "samples": 2}},
    },
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Return a folder with a prepared data set and pretrained agents."""
    folder = tmp_path_factory.mktemp("rewards")
    params = make_toy_params()
    params["methods"] = METHODS
    params["evaluate"]["baselines"] = {}
    params["report"] |= {"control": "mixer", "frozen_speakers": []}
    params["sweep"]["grid"] = {"mixer": {"decrement": [1]}}
    pretrained = [("pretrain", "--role", role) for role in ("listener", "speaker")]
    return run_stages(folder, params, ("draw", "--dataset", "scenes"), ("prepare",), ("features",), *pretrained)


@pytest.mark.parametrize("name", [pytest.param("pg_spider", marks=pytest.mark.slow), "mixer", "luo_relax"])
def test_a_method_trains_from_params_alone_to_the_same_weights_each_time(world, monkeypatch, name):
    monkeypatch.chdir(world)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    for out in ("one", "two"):
        assert run_stage("train", "--method", name, "--out", out) == 0
    first, second = (Path(out, "weights.safetensors") for out in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
    logged, built = json.loads(Path("one/metrics.json").read_text()), load_agent(first, "critic").arguments
    assert logged["naturalness/score"] > 0
    if name == "luo_relax":
        assert (built["names"], built["state"], built["hidden"]) == (["discriminability", "naturalness"], 8, 8)
        assert logged["naturalness/noise"] > 0
    else:
        assert built == {"state": 8, "hidden": 512}
        assert logged["critic/loss"] > 0
    assert logged["critic/gradient_norm"] > 0
    assert run_stage("adapt", "--method", name, "--model", "one", "--out", "adapted") == 0


def test_spice_without_its_parser_is_reported_in_one_line(world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    monkeypatch.setattr("pipeline.metrics.java.PARSER", ("absent.jar",))
    arguments = ["--method", "mixer", "--set", "methods.mixer.reward=spider", "--out", "none"]
    assert run_stage("train", *arguments) == 2
    assert capsys.readouterr().err.strip().startswith("reward SPICE: SPICE needs absent.jar in pycocoevalcap; fetch")
