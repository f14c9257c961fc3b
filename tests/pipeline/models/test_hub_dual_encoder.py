"""CLIP and SigLIP of transformers as retrievers equal the library's own forward passes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_judges import LONGEST, MODELS, write_judge

from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.errors import UserError
from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.features.hub_dual_tower import HubDualNetwork
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.hub_dual_encoder import HubDualEncoder
from pipeline.models.model_settings import PretrainedJudgeSettings
from pipeline.models.pretrained_encoder import load_pretrained_encoder
from pipeline.runtime.hub_loading import import_transformers

CPU, TEXTS = torch.device("cpu"), ["a red ball", "a green dog on the box"]
LONG = "the dog on the box on the ball on the dog"


@pytest.fixture(scope="module", params=[name for name in MODELS if name != "siglip2"])
def family(request, tmp_path_factory):
    """Return a family's name, and the folder of one of its models."""
    folder = tmp_path_factory.mktemp("dual") / request.param
    write_judge(request.param, folder)
    return request.param, folder


def make_photos() -> list[Image.Image]:
    random = np.random.default_rng(0)
    sizes = ((40, 50), (32, 90), (64, 64))
    return [Image.fromarray(random.integers(0, 255, (*size, 3), dtype=np.uint8)) for size in sizes]


def test_both_towers_equal_the_librarys_own_forward(family, tmp_path):
    name, folder = family
    network = open_network(NetworkSettings(f"hub/{folder}"))
    assert isinstance(network, HubDualNetwork)
    outputs = network([network.prepare(photo) for photo in make_photos()])
    with FeatureWriter(tmp_path, 3, network.pooled_size, network.regions_shape) as store:
        store.manifest.update(network.description)
        store.write(np.arange(3), outputs.pooled.numpy(), outputs.regions.numpy())
    settings = PretrainedJudgeSettings(features="clip", network=f"hub/{folder}", weights="hub")
    encoder = load_pretrained_encoder(settings, FeatureStore(tmp_path), CPU)
    save_agents(tmp_path / "weights.safetensors", {"listener": encoder})
    loaded = load_agent(tmp_path / "weights.safetensors", "listener")
    assert isinstance(loaded, HubDualEncoder)
    assert isinstance(loaded, DualEncoder)
    hub = import_transformers()
    whole, processor = (
        getattr(hub, MODELS[name]).from_pretrained(folder).eval(),
        hub.AutoProcessor.from_pretrained(folder),
    )
    texts = [*TEXTS, LONG]
    inputs = processor(
        text=texts, images=make_photos(), padding="max_length", truncation=True, max_length=LONGEST, return_tensors="pt"
    )
    with torch.inference_mode():
        expected, tower = whole(**inputs), whole.vision_model(inputs["pixel_values"])
        tolerance = {"atol": 1e-5, "rtol": 0.0}
        torch.testing.assert_close(loaded.encode_text(texts), expected.text_embeds, **tolerance)
        torch.testing.assert_close(loaded.encode_text(texts[:1]), expected.text_embeds[:1], **tolerance)
        torch.testing.assert_close(loaded.encode_image(outputs.pooled), expected.image_embeds, **tolerance)
    # 32 pixels in patches of 16
    torch.testing.assert_close(outputs.regions, tower.last_hidden_state[:, -4:], **tolerance)
    assert (loaded.encode_text(TEXTS)[0] - loaded.encode_text(TEXTS)[1]).abs().max() > 0.01
    token_ids = processor.tokenizer([LONG], truncation=False)["input_ids"][0]
    assert int(loaded.count_tokens([LONG])) == len(token_ids) > loaded.max_tokens == LONGEST


def test_a_model_that_does_not_fit_is_reported_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("siglip", "siglip2"):
        write_judge(name, tmp_path / name)
    with pytest.raises(UserError, match=r"siglip2 takes images of several sizes; give a model of one size"):
        open_network(NetworkSettings("hub/siglip2"))
    with pytest.raises(UserError, match=r"network: hub/siglip takes weights: hub, options: {}, image_size, mean, std"):
        open_network(NetworkSettings("hub/siglip", 64))
    encoder = HubDualEncoder.from_model("siglip", _load_whole_model("siglip"), "clip")
    shutil.rmtree("siglip")
    with pytest.raises(UserError, match=r"^siglip: no AutoTokenizer in a folder of this name") as error:
        encoder.encode_text(TEXTS)
    assert "\n" not in error.value.args[0]


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_processor_of_another_size_is_reported_in_one_line(tmp_path, name):
    write_judge(name, tmp_path / name)
    file = tmp_path / name / "processor_config.json"
    file.write_text(file.read_text().replace("32", "48"))
    line = r"expected a processor that gives images \(3, 32, 32\), found \(3, 48, 48\)"
    with pytest.raises(UserError, match=line) as error:
        open_network(NetworkSettings(f"hub/{tmp_path / name}"))
    assert "\n" not in error.value.args[0]


def _load_whole_model(name: str):
    from pipeline.runtime.hub_loading import load_dual_encoder

    return load_dual_encoder(name)
