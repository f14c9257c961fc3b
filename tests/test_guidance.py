"""Guidance, re-ranking and pragmatic decoding in the real stages.

Guidance uses a null image that the speaker learns in pretraining or by the method `guidance`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from stage_runs import run_stage, run_stages
from toy_world import make_toy_params

from pipeline.models.agent_files import load_agent
from pipeline.models.guided import GuidedDecoder
from pipeline.workflow.stage import main
from stages import evaluate, pretrain, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Yield a folder with 34 scenes and pretrained agents; the speaker has no null image."""
    folder = tmp_path_factory.mktemp("guidance")
    params = make_toy_params()
    params["methods"] |= {"guidance": {"from": "guidance", "gamma": 2.0}}
    params["evaluate"]["metrics"] = ["BLEU", "CIDEr"]
    # the training is long enough that captions depend on the image
    params["pretrain"]["speaker"] |= {"hidden_dim": 24, "attention_dim": 24}
    params["pretrain"]["speaker"]["optimisation"] |= {"epochs": 40, "learning_rate": 0.01}
    params["train"]["optimisation"] |= {"epochs": 3, "learning_rate": 0.005}
    run_stages(
        folder,
        params,
        ("draw", "--dataset", "scenes"),
        ("prepare",),
        *(("features", "--features", name) for name in ("main", "judge")),
        *(("pretrain", "--role", role) for role in ("listener", "speaker", "judge")),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SAYWHICH_TRACKING", "off")
        yield folder


@pytest.fixture
def replaceable_speaker(world, tmp_path):
    """Restore the pretrained speaker after a test that pretrains another one."""
    folder = Path("data/pretrained/speaker")
    shutil.copytree(folder, tmp_path / "speaker")
    yield
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "speaker", folder)


def load_speaker(folder: str):
    return load_agent(Path("data") / folder / "weights.safetensors", "speaker")


def read_metrics(method: str) -> dict:
    return json.loads(Path("data/evaluation", method, "metrics.json").read_text())


def read_captions(method: str) -> list[str]:
    return pq.read_table(Path("data/evaluation", method, "captions.parquet"))["caption"].to_pylist()


def run_method(method: str, *options: str) -> None:
    """Run the stages train, adapt and evaluate of a method."""
    for stage in ("train", "adapt", "evaluate"):
        assert run_stage(stage, "--method", method, *options) == 0


def test_the_method_learns_a_null_image_and_its_captions_are_guided(world):
    assert load_speaker("pretrained/speaker").null is None
    run_method("guidance")
    speaker = load_speaker("models/guidance")
    assert isinstance(speaker, GuidedDecoder)
    assert speaker.gamma == 2
    assert speaker.inner.null.abs().max() > 0
    assert read_metrics("guidance")["settings"] == {"lambda": 0.0, "image_dropout": 0.1, "gamma": 2.0, "seed": 1}
    assert "|decode=beam:2|guidance=2|" in read_metrics("guidance")["signature"]
    # after so little training, a smaller gamma changes no word
    run_method("guidance", "--set", "methods.guidance.gamma=60")
    guided = read_captions("guidance")
    run_method("guidance", "--set", "methods.guidance.gamma=1")
    assert not isinstance(load_speaker("models/guidance"), GuidedDecoder)
    assert "gamma" not in read_metrics("guidance")["settings"]
    assert "guidance" not in read_metrics("guidance")["signature"]
    assert read_captions("guidance") != guided


@pytest.mark.usefixtures("replaceable_speaker")
def test_any_methods_speaker_is_guided_by_the_null_image_of_pretraining(capsys):
    dropout_options = ["--set", "pretrain.speaker.image_dropout=0.3"]
    options = [*dropout_options, "--set", "methods.psst_multinomial.gamma=1.5"]
    arguments = ["--method", "psst_multinomial", *options]
    assert main("train", train.run, arguments) == 2
    printed = capsys.readouterr().err.strip().splitlines()[-1]
    assert printed.startswith(
        "gamma = 1.5: guidance needs the null image of the pretrained speaker, which has none; set image_dropout"
    )
    assert not Path("data/models/psst_multinomial").exists()
    assert main("pretrain", pretrain.run, ["--role", "speaker", *dropout_options]) == 0
    null_image = load_speaker("pretrained/speaker").null
    assert null_image.abs().max() > 0
    run_method("psst_multinomial", *options)
    speaker = load_speaker("models/psst_multinomial")
    assert isinstance(speaker, GuidedDecoder)
    assert speaker.inner.null.equal(null_image), "joint training must not change the null image"
    assert not speaker.word.weight.equal(load_speaker("pretrained/speaker").word.weight)
    assert read_metrics("psst_multinomial")["settings"]["gamma"] == 1.5
    zero_epochs = ["--set", "methods.mle.gamma=3", "--set", "methods.mle.train={optimisation: {epochs: 0}}"]
    run_method("mle", *dropout_options, *zero_epochs)
    assert load_speaker("models/mle").word.weight.equal(load_speaker("pretrained/speaker").word.weight), (
        "zero epochs must leave the pretrained weights"
    )
    assert "|guidance=3|" in read_metrics("mle")["signature"]


def test_reranking_and_pragmatic_decoding_need_no_other_training(world):
    run_method("mle")
    assert "rerank" not in read_metrics("mle")["signature"]
    captions = [read_captions("mle")]
    for samples in (1, 20):
        options = ["--method", "mle", "--set", f"methods.mle.rerank={{samples: {samples}}}"]
        assert main("evaluate", evaluate.run, options) == 0
        assert read_metrics("mle")["settings"]["rerank"] == {"samples": samples}
        assert f"|rerank=samples:{samples},among:split|" in read_metrics("mle")["signature"]
        captions.append(read_captions("mle"))
    # after so little training, a smaller alpha changes no word
    options = ["--method", "mle", "--set", "methods.mle.pragmatic={alpha: 1000000, distractors: 3}"]
    assert main("evaluate", evaluate.run, options) == 0
    assert read_metrics("mle")["settings"]["pragmatic"] == {"alpha": 1e6, "distractors": 3, "posterior": "speaker"}
    assert "|pragmatic=alpha:1e+06,distractors:3,posterior:speaker,among:split|" in read_metrics("mle")["signature"]
    captions.append(read_captions("mle"))
    options[-1] = "methods.mle.pragmatic={alpha: 1000000, posterior: listener}"
    assert main("evaluate", evaluate.run, options) == 0
    captions.append(read_captions("mle"))
    assert len({tuple(texts) for texts in captions}) == 5, (
        "captions must differ by beam, one sample, best of twenty, and both pragmatic posteriors"
    )
