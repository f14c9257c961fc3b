"""A pretrained captioner in the real stages: its tokens, its tower's regions, pretraining, joint training."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from stage_runs import run_stage
from test_own_photos import enter_photo_repository
from tiny_captioners import IMAGE, REGIONS, WORDS, write_captioner
from whole_profiles import load_profile, read_profile_text

from pipeline.composition.joint import build_text_scorer
from pipeline.config.load import load
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.metrics.registry import METRICS

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("peft") is None,
    reason="captioners need the extra: pip install 'saywhich[hub]'",
)
ROOT = Path(__file__).parents[1]


def set_captioner(params: dict) -> dict:
    """Set the captioner as network and speaker of the profile folder, and one epoch for each training."""
    params["prepare"]["shares"]["seed"] = 4  # six of these photos to train on, two for val, two for test
    params["prepare"] |= {"tokenizer": "captioner", "min_count": None, "max_words": 8}
    params["features"]["main"] = {"network": "hub/captioner", "weights": "hub", "batch": 4}
    one_epoch = {"epochs": 1, "validate_every": 1}
    speaker = params["pretrain"]["speaker"]
    params["pretrain"]["speaker"] = {
        "features": "main",
        "architecture": "hub",
        "model": "captioner",
        "lora": {"rank": 2, "alpha": 4},
        "dropout": 0.1,
        "optimisation": speaker["optimisation"] | one_epoch,
    }
    for role in ("listener", "judge"):
        params["pretrain"][role] |= {"word_dim": 8, "hidden_dim": 8}
        params["pretrain"][role]["optimisation"] |= one_epoch
    for section in ("train", "adapt"):
        params[section]["optimisation"] |= one_epoch
    params["evaluate"]["metrics"] = ["CIDEr"]
    return params


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Make a working folder with ten photos and a tiny BLIP in `captioner`; return the folder of the photos."""
    folder = enter_photo_repository(tmp_path, set_captioner(load_profile("folder")), monkeypatch)
    write_captioner("blip", tmp_path / "captioner")
    return folder


@pytest.mark.slow
def test_a_captioner_is_prepared_trained_and_evaluated(photos):
    assert run_stage("prepare") == 0
    prepared = PreparedData.load(Path("data/prepared"))
    assert prepared.vocabulary.words == (*WORDS, "[UNK]")
    assert prepared.manifest["tokenizer"]["name"] == "captioner"
    row = [prepared.file(image) for image in range(10)].index("0.jpg")
    # "A red ball, on white.", whose comma and full stop are unknown, and "the ball is red"
    assert prepared.captions(row) == [[1, 3, 8, 16, 10, 11, 16], [2, 8, 12, 3]]
    assert prepared.vocabulary.decode([2, 13, 14, 15, 8, 0, 5]) == "the whites ball"
    assert run_stage("features") == 0
    store = FeatureStore(Path("data/features/main"))
    assert (store.pooled_size, store.regions_shape) == (24, (REGIONS, 24))
    for role in ("listener", "speaker", "judge"):
        assert run_stage("pretrain", "--role", role) == 0
    shutil.rmtree("captioner")  # later stages need neither the captioner nor its tokenizer
    for stage in ("train", "adapt", "evaluate"):
        assert run_stage(stage, "--method", "psst_multinomial") == 0
    trained, pretrained = (
        load_file(Path("data") / name / "weights.safetensors")
        for name in ("models/psst_multinomial", "pretrained/speaker")
    )
    names = [name for name in pretrained if name.startswith("speaker.")]
    changed = {name for name in names if not torch.equal(pretrained[name], trained[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    metrics = json.loads(Path("data/evaluation/psst_multinomial/metrics.json").read_text())
    assert metrics["test"]["images"] == 2
    captions = pq.read_table("data/evaluation/psst_multinomial/captions.parquet")["caption"].to_pylist()
    assert len(captions) == 4
    assert any(captions)
    assert not any("##" in text for text in captions)
    manifest = FeatureStore(Path("data/features/main")).manifest
    assert manifest["network"] == "hub/captioner"


def test_text_rewards_score_words_without_punctuation(photos, monkeypatch):
    assert run_stage("prepare") == 0
    texts, scored = build_text_scorer(PreparedData.load(Path("data/prepared"))), []
    monkeypatch.setattr(
        texts, "_compute", lambda metric, captions, human: scored.extend((*captions, *human[0])) or [0.5]
    )
    (meteor,) = (metric for metric in METRICS if metric.name == "METEOR")
    texts.score(meteor, torch.tensor([[1, 3, 13, 14, 15, 10, 16, 0]]), torch.tensor([0]))
    assert scored[0] == "a red whites on unk"
    assert scored[1].split()
    assert set(scored[1].split()) <= {*WORDS}


def test_the_tower_takes_squashed_images_with_its_processors_settings(photos):
    from pipeline.features.extract import open_network
    from pipeline.features.extractor import NetworkSettings

    network = open_network(NetworkSettings("hub/captioner"))
    image = Image.fromarray(np.arange(IMAGE * IMAGE * 3, dtype=np.uint8).reshape(IMAGE, IMAGE, 3))
    pixels = network.prepare(image)
    for channel, (mean, std) in enumerate(((0.4, 0.2), (0.5, 0.25), (0.6, 0.3))):
        expected = torch.tensor((np.asarray(image)[2, 5, channel] / 255 - mean) / std).float()
        torch.testing.assert_close(pixels[channel, 2, 5], expected)
    other = open_network(NetworkSettings("hub/captioner", mean=(0.0, 0.0, 0.0))).prepare(image)
    torch.testing.assert_close(other[0], pixels[0] + 0.4 / 0.2)  # a mean of params.yaml replaces the processor's
    assert network.prepare(Image.new("RGB", (100, 30))).shape == (3, IMAGE, IMAGE)
    with torch.no_grad():
        expected = network.model(pixel_values=pixels[None])
    features = network([pixels])
    torch.testing.assert_close(features.regions, expected.last_hidden_state)
    torch.testing.assert_close(features.pooled, expected.pooler_output)
    assert network.description["preprocessing"]["mean"] == (0.4, 0.5, 0.6)
    with pytest.raises(UserError, match=r"features.image_size: captioner does not take 40 pixels"):
        open_network(NetworkSettings("hub/captioner", 40))
    with pytest.raises(UserError, match=r"takes weights: hub, options: {} and grid_size: null"):
        open_network(NetworkSettings("hub/captioner", grid_size=2))


def test_a_large_vocabulary_is_reduced_to_tokens_of_the_captions(photos):
    from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary

    vocabulary = TokenizerVocabulary.fetch("captioner", Path("cut"), ["a red ball", "the red box"], 10)
    assert vocabulary.words == ("a", "the", "red", "ball", "box", "[UNK]")
    assert vocabulary.encode(["the", "green", "box"]) == [2, 6, 5]
    with pytest.raises(UserError, match="expected at most 2 different tokens in the captions, got 5"):
        TokenizerVocabulary.fetch("captioner", Path("cut"), ["a red ball", "the red box"], 3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("prepare.tokenizer=", "min_count is needed"),
        ("prepare.min_count=1", "min_count is needed where words are counted"),
        ("features.main={network: hub/other, weights: hub, batch: 4}", "goes with prepare.tokenizer: captioner and"),
        ("pretrain.speaker.hidden_dim=8", "architecture hub takes model, and no sizes; remove hidden_dim"),
        ("pretrain.speaker.model=", "architecture hub takes model, and no sizes; set model"),
        ("pretrain.speaker.lora.rank=0", "a whole number, at least 1"),
    ],
)
def test_incompatible_settings_are_reported_in_one_line(photos, override, message):
    with pytest.raises(UserError, match=message) as caught:
        load(Path("params.yaml"), [override])
    assert "\n" not in caught.value.args[0]


def test_only_captioners_have_lora(tmp_path):
    (tmp_path / "params.yaml").write_text(read_profile_text("folder"), encoding="utf-8")
    with pytest.raises(UserError, match="lora goes with architecture hub, not with att2in"):
        load(tmp_path / "params.yaml", ["pretrain.speaker.lora={rank: 2, alpha: 4}"])


def test_a_missing_extra_is_reported_in_one_line(photos, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert run_stage("prepare") == 2
    assert (
        capfd.readouterr()
        .err.strip()
        .endswith("need transformers, which is not installed: pip install 'saywhich[hub]'")
    )
