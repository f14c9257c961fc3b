from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.models.agent_files import _check_limits, load_agent, save_agents
from pipeline.models.guided import GuidedDecoder
from pipeline.models.transformer import Transformer


def test_saved_agents_are_loaded_unchanged(toy, tmp_path, decoder):
    agents = toy.agents(dropout=0.3, decoder=decoder)
    path = tmp_path / "weights.safetensors"
    save_agents(path, {"speaker": agents.speaker, "listener": agents.listener})
    for name, agent in (("speaker", agents.speaker), ("listener", agents.listener)):
        loaded = load_agent(path, name)
        assert loaded.arguments == agent.arguments
        assert not loaded.training
        assert all(torch.equal(t, loaded.state_dict()[n]) for n, t in agent.state_dict().items())


def test_a_guided_speaker_is_loaded_guided_and_one_without_a_null_image_is_written_unchanged(toy, tmp_path):
    speaker, path = toy.agents().speaker, tmp_path / "weights.safetensors"
    assert "null_image" not in speaker.arguments
    assert "null" not in speaker.state_dict()
    speaker.add_null_image()
    save_agents(path, {"speaker": GuidedDecoder(speaker, 1.5)})
    found = load_agent(path, "speaker")
    assert isinstance(found, GuidedDecoder)
    assert (found.gamma, found.training) == (1.5, False)
    assert found.inner.state_dict().keys() == speaker.state_dict().keys()
    assert all(torch.equal(value, found.inner.state_dict()[name]) for name, value in speaker.state_dict().items())


def test_equal_agents_give_equal_bytes(toy, tmp_path):
    for name in ("a", "b"):
        save_agents(tmp_path / name, {"listener": toy.agents().listener})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_unreadable_weights_are_reported_with_the_file(toy, tmp_path):
    path = tmp_path / "weights.safetensors"
    with pytest.raises(UserError, match=r"weights\.safetensors: no such weights"):
        load_agent(path, "speaker")
    save_agents(path, {"listener": toy.agents().listener})
    with pytest.raises(UserError, match="holds no speaker, only listener"):
        load_agent(path, "speaker")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(UserError, match="not a complete weights file"):
        load_agent(path, "listener")
    listener = toy.agents().listener
    listener.arguments["hidden"] = 11
    save_agents(path, {"listener": listener})
    with pytest.raises(UserError, match="listener is of another version"):
        load_agent(path, "listener")


def test_a_flipped_bit_is_reported(toy, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_agents(path, {"listener": toy.agents().listener})
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    positions = [0, 9, whole.index(b"sha256"), whole.index(b"sha256") + 20, *rng.integers(0, len(whole), 100)]
    for position in positions:
        broken = bytearray(whole)
        broken[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with pytest.raises(UserError, match=r"weights\.safetensors: not a complete weights file"):
            load_agent(path, "listener")


def test_weights_with_nan_are_refused(toy, tmp_path):
    listener = toy.agents().listener
    with torch.no_grad():
        listener.word.weight[1, 1] = float("nan")
    save_agents(tmp_path / "weights.safetensors", {"listener": listener})
    with pytest.raises(UserError, match=r"listener\.word\.weight contains NaN or a value that is infinite"):
        load_agent(tmp_path / "weights.safetensors", "listener")


def test_complete_weights_of_another_training_are_named(toy, tmp_path):
    for seed, name in enumerate(("a", "b", "moved")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "history.jsonl").write_text(f'{{"loss": {seed}}}\n')
        save_agents(
            tmp_path / name / "weights.safetensors",
            {"listener": toy.agents(seed).listener},
            tmp_path / name / "history.jsonl",
        )
    shutil.copy(tmp_path / "b/weights.safetensors", tmp_path / "a/weights.safetensors")
    with pytest.raises(UserError, match=r"a/weights\.safetensors: is not from the same training as .*a/history\.jsonl"):
        load_agent(tmp_path / "a/weights.safetensors", "listener")
    with pytest.raises(UserError, match="holds no speaker, only listener"):
        load_agent(tmp_path / "b/weights.safetensors", "speaker")
    (tmp_path / "moved/history.jsonl").unlink()  # weights without their history can be loaded
    assert load_agent(tmp_path / "moved/weights.safetensors", "listener").arguments["hidden"] == 10


def test_networks_of_many_layers_are_saved_and_loaded(tmp_path):
    # params.yaml permits 1,000 layers
    path = tmp_path / "weights.safetensors"
    save_agents(path, {"speaker": Transformer(3, 2, hidden=2, encoder_layers=129, layers=1, heads=1)})
    assert load_agent(path, "speaker").arguments["encoder_layers"] == 129
    _check_limits({"layers": 1000, "encoder_layers": 1000}, "weights")
    for key in ("layers", "encoder_layers", "num_hidden_layers"):
        with pytest.raises(UserError, match=f"weights: {key} is 1001, and 1,000 is the largest possible"):
            _check_limits({key: 1001}, "weights")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_exhausted_memory_is_not_taken_for_another_version(toy, tmp_path, monkeypatch, error):
    def load(network, tensors):
        raise error

    listener, path = toy.agents().listener, tmp_path / "weights.safetensors"
    save_agents(path, {"listener": listener})
    monkeypatch.setattr(type(listener), "load_state_dict", load)
    with pytest.raises(
        UserError, match=r"weights\.safetensors: too little memory to load listener; end other programs"
    ):
        load_agent(path, "listener")


def test_sizes_that_no_network_has_are_refused_however_deep_they_lie():
    deep = {"encoder": {"kind": "Hciae", "arguments": {"hidden": 10**9}}}
    for arguments in ({"hidden": 10**9}, {"parts": [{"hidden": 10**9}]}, deep):
        with pytest.raises(UserError, match=r"weights: hidden is 1000000000, and .* is the largest possible"):
            _check_limits(arguments, "weights")
    with pytest.raises(UserError, match=r"weights: max_words is 0, and 1 is the smallest possible"):
        _check_limits({"max_words": 0}, "weights")
    _check_limits({"encoder": {"arguments": {"hidden": 512, "dropout": 0.5, "image": True}}}, "weights")
