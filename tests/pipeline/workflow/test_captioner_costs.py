"""Calculated costs of fine-tuning against the loaded captioner's own tensors, and against sums by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_captioners import IMAGE, KINDS, REGIONS, TOWER, write_captioner
from tiny_pretrained import PROMPT_KINDS, write_pretrained
from whole_profiles import read_profile_text

from pipeline.config.load import load, resolve_method_settings
from pipeline.errors import UserError
from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.models.decoder import RolloutDropout
from pipeline.models.hub_captioner import HubDecoder, serialise_config
from pipeline.random import BatchRandom
from pipeline.runtime.hub_loading import import_transformers, load_captioner
from pipeline.types import Batch
from pipeline.workflow import captioner_costs, estimate
from pipeline.workflow.captioner_costs import (
    OVERHEAD,
    CaptionerSize,
    count_captions_per_image,
    estimate_step_cost,
    read_size,
)

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("peft") is None,
    reason="captioners need the extra: pip install 'saywhich[hub]'",
)
LORA = {"rank": 2, "alpha": 4, "targets": None}


@pytest.mark.parametrize("kind", [*KINDS, *PROMPT_KINDS])
def test_sizes_are_those_of_the_loaded_captioner(kind, tmp_path):
    write_captioner(kind, tmp_path) if kind in KINDS else write_pretrained(kind, tmp_path)
    region_count = REGIONS if kind in KINDS else open_network(NetworkSettings(f"hub/{tmp_path}")).regions_shape[0]
    size = read_size(str(tmp_path), 6, LORA)
    speaker = HubDecoder(size.vocabulary - 1, serialise_config(load_captioner(str(tmp_path))), 6, 0.0, LORA)
    speaker.requires_grad_(True)
    counts = [(p.numel(), p.requires_grad) for p in speaker.parameters()]
    assert size.weights == sum(count for count, _ in counts)
    assert size.trained == sum(count for count, trained in counts if trained)
    assert size.regions == region_count
    regions = torch.randn(1, region_count, speaker.region_size)
    batch = Batch(
        torch.arange(1),
        regions.mean(1),
        regions,
        torch.ones(1, region_count, dtype=torch.bool),
        torch.ones(1, 6).long(),
    )
    encoded = speaker.encode_image(batch)
    state = speaker.begin(batch, encoded, RolloutDropout(0.0, BatchRandom(batch, None)), 1)
    cache = state.token_cache if speaker.prefix else state.region_cache
    assert size.region_cache == sum(keys.numel() + values.numel() for keys, values in cache)


def write_vision_encoder_decoder(folder: Path, encoder: Any, **decoder: int) -> None:
    """Write a captioner with the vision tower `encoder`; `decoder` has the settings of a BART text decoder."""
    hub = import_transformers()
    write_captioner("vision-encoder-decoder", folder)
    text = hub.AutoConfig.from_pretrained(folder).decoder
    if decoder:
        text = hub.BartConfig(**decoder, d_model=16, vocab_size=text.vocab_size, is_decoder=True,
                              add_cross_attention=True, bos_token_id=text.bos_token_id)  # fmt: skip
    config = hub.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, text)
    config.decoder_start_token_id, config.eos_token_id = text.bos_token_id, text.eos_token_id
    hub.VisionEncoderDecoderModel(config).save_pretrained(folder)


@pytest.mark.parametrize("kind", ["SwinConfig", "SiglipVisionConfig", "DeiTConfig"])
def test_regions_are_those_of_towers_that_merge_patches_or_have_zero_or_two_class_tokens(kind, tmp_path):
    swin = {"image_size": IMAGE, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 1]}
    options = {**swin, "window_size": 4} if kind == "SwinConfig" else TOWER
    write_vision_encoder_decoder(tmp_path, getattr(import_transformers(), kind)(**options))
    region_count = open_network(NetworkSettings(f"hub/{tmp_path}")).regions_shape[0]
    assert read_size(str(tmp_path), 6, None).regions == region_count


def test_an_image_size_that_is_no_whole_number_is_reported(tmp_path):
    write_captioner("blip", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    config["vision_config"]["image_size"] = [16, 16]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError, match=r"expected whole numbers image_size .* got \[16, 16\] and 8"):
        read_size(str(tmp_path), 6, None)


def test_a_decoder_without_a_number_of_layers_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(captioner_costs, "LAYER_COUNTS", ("depth", "blocks"))
    write_captioner("blip", tmp_path)
    with pytest.raises(UserError, match=r"expected one of depth, blocks, found none; add one"):
        read_size(str(tmp_path), 6, None)


def test_heads_and_layers_are_those_of_the_decoder(tmp_path):
    layout = {"encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 2, "decoder_attention_heads": 4}
    write_vision_encoder_decoder(tmp_path, import_transformers().ViTConfig(**TOWER), **layout)
    size = read_size(str(tmp_path), 6, None)
    assert (size.layers, size.heads, size.keys) == (3, 4, 16)


def test_captions_per_image_follow_the_kind_and_the_samples_of_a_method(tmp_path):
    methods = """
  luo: {from: luo, speaker: speaker, lambda: 0.5}
  sll: {from: sle, speaker: speaker, samples: 4}
  sll_me: {from: sle, speaker: speaker}
  sll_sle: {from: sle, speaker: speaker, samples: 7}
  pg_spider: {from: spider, speaker: speaker}
  reinforce: {from: psst, speaker: speaker, lambda: 0.5}
  wtf: {from: wtf_rl, speaker: speaker}
  scst_grammar: {from: wtf_rl, speaker: speaker, train: {objective: {samples: 5}}}
  guidance: {from: guidance, speaker: speaker}
  several: {from: psst, speaker: speaker, method: reinforce, lambda: 0.5, train: {objective: {samples: 5}}}
"""
    text = read_profile_text("folder_blip").replace("\nmethods:\n", f"\nmethods:{methods}")
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    params = load(tmp_path / "params.yaml")
    expected_counts = {
        "luo": 1,
        "sll": 4,
        "sll_me": 1,
        "sll_sle": 7,
        "pg_spider": 1,
        "reinforce": 1,
        "several": 5,
        "psst_multinomial": 2,
        "wtf": 1,
        "scst_grammar": 1,
        "guidance": 1,
    }
    for name, expected_count in expected_counts.items():
        assert count_captions_per_image(resolve_method_settings(params, name)) == expected_count, name


@pytest.mark.parametrize("option", ["--gpu-memory", "--teraflops", "--bandwidth"])
@pytest.mark.parametrize("value", ["0", "-5", "nan", "inf"])
def test_a_gpu_without_memory_or_speed_is_reported(option, value, tmp_path, monkeypatch, capsys):
    (tmp_path / "params.yaml").write_text(read_profile_text("folder_blip"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert estimate.main([option, value]) == 2
    assert capsys.readouterr().err == f"{option} {value}: a finite number above 0 is expected\n"


def test_a_step_costs_the_sum_of_its_parts():
    size = CaptionerSize(
        weights=10**8, trained=10**6, matmul_weights=9 * 10**7, saved_activations=10**5, layers=10, heads=10,
        hidden=1000, keys=500, vocabulary=10**4, regions=90, words=10,
    )  # fmt: skip
    cost = estimate_step_cost(size, images=4, captions=20, kl_penalty=False, teraflops=1.0, bandwidth=100.0)
    assert cost.gigabytes == pytest.approx({
        "weights": 0.4,
        "gradients and Adam": 0.012,
        "keys and values of regions": 2 * 20 * 2 * 10 * 90 * 500 * 4e-9,
        "kept for the backward pass": 200 * (10**5 + 2 * 10 * 10 * 100) * 4e-9,
        "logits": 200 * 10**4 * 2 * 4e-9,
        "CUDA": OVERHEAD,
    })  # fmt: skip
    assert cost.memory == pytest.approx(sum(cost.gigabytes.values()))
    forward = 200 * (1.8e8 + 4 * 10 * 90 * 1000) + 2 * 4 * 9e5 * 1000
    assert cost.compute_seconds == pytest.approx(2 * forward / 1e12)
    assert cost.read_seconds == pytest.approx(10 * (9e7 + 20 * 9e5) * 3 * 4e-9 / 100)
    assert cost.seconds == max(cost.compute_seconds, cost.read_seconds)
    penalised = estimate_step_cost(size, 4, 20, True, 1.0, 100.0)
    assert penalised.gigabytes["logits"] == 2 * cost.gigabytes["logits"]
    assert penalised.compute_seconds == pytest.approx(1.5 * cost.compute_seconds)
    whole = estimate_step_cost(replace(size, trained=10**8), 4, 20, False, 1.0, 100.0)
    assert whole.compute_seconds == pytest.approx(1.5 * cost.compute_seconds)


def test_the_command_prints_the_cost_of_each_method(tmp_path, monkeypatch, capsys):
    write_captioner("blip", tmp_path / "captioner")
    text = read_profile_text("folder_blip").replace("Salesforce/blip-image-captioning-base", "captioner")
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert estimate.main(["--gpu-memory", "0.7"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "calculated, not measured, in float32 for 5 TFLOP/s and 200 GB/s:"
    assert [line.partition(":")[0] for line in lines] == list(load(tmp_path / "params.yaml").methods)
    captions = {line.partition(":")[0]: line.split()[1] for line in lines}
    assert captions == {
        "mle": "12",
        "psst_multinomial": "24",
        "wtf_rl": "24",
        "rloo": "36",
        "grpo": "36",
        "discritune": "12",
    }
    assert all("which fits in 0.7 GB" in line for line in lines)
