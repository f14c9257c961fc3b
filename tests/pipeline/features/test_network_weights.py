import hashlib
import pickle
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from pipeline.errors import UserError
from pipeline.features.extractor import NetworkSettings
from pipeline.features.network_weights import load_torchvision
from pipeline.features.networks import TimmNetwork
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.torchvision_cpu import declare_operators

TINY, REPOSITORY = "test_resnet", "models--timm--test_resnet.r160_in1k"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the empty cache folder of the hub's client, which is offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_weights_of_the_hub_are_checked_against_the_digest_in_their_name(cache, tmp_path):
    """Random weights are loaded from a cache in the form of the hub's client, and refused after one bit has changed."""
    declare_operators()
    import timm

    torch.manual_seed(0)
    model = timm.create_model(TINY).eval()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    digest, repository = compute_sha256(tmp_path / "weights.safetensors"), cache / REPOSITORY
    for folder in ("refs", "blobs", "snapshots/0123"):
        (repository / folder).mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123")
    blob = repository / "blobs" / digest
    blob.write_bytes((tmp_path / "weights.safetensors").read_bytes())
    (repository / "snapshots" / "0123" / "model.safetensors").symlink_to(blob)
    network = TimmNetwork(NetworkSettings(TINY, 32, "hub"))
    assert network.description["weights"] == {
        "source": "hub", "file": "timm/test_resnet.r160_in1k/model.safetensors", "sha256": digest,
    }  # fmt: skip
    for key, value in network.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[key]), key
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    with pytest.raises(
        UserError, match=r"the SHA-256 is .* not the file's name; remove the file and fetch it again"
    ) as error:
        TimmNetwork(NetworkSettings(TINY, 32, "hub"))
    assert str(error.value).startswith(str(blob))


def test_an_unreachable_hub_is_reported_in_one_line(cache):
    with pytest.raises(UserError, match=r"^features.weights: hub has no weights for test_resnet that can be") as error:
        TimmNetwork(NetworkSettings(TINY, 32, "hub"))
    assert "fetch model.safetensors of timm/test_resnet.r160_in1k on a machine with internet access" in str(error.value)
    assert "give its path as features.weights" in str(error.value)
    assert "\n" not in error.value.args[0]


class PrintingPickle:
    def __reduce__(self):
        return print, ("this must not run",)


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    """Return a function that writes bytes into PyTorch's empty download folder, and returns the path and an entry.

    The file's name has the first eight digits of its SHA-256, or `prefix`.
    """
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()

    def write_checkpoint(content, prefix=None):
        prefix = prefix or hashlib.sha256(content).hexdigest()[:8]
        path = tmp_path / "checkpoints" / f"line-{prefix}.pth"
        path.write_bytes(content)
        return path, SimpleNamespace(url=f"http://127.0.0.1:9/models/{path.name}")

    return write_checkpoint


def serialise(value, path):
    torch.save(value, path)
    return path.read_bytes()


def test_weights_of_torchvision_must_be_tensors_and_have_the_digest_in_their_name(checkpoints, tmp_path, capfd):
    layer, source = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    content = serialise(source.state_dict(), tmp_path / "a")
    path, entry = checkpoints(content)
    record = load_torchvision(layer, "hub", entry, "line")
    assert record == {"source": "hub", "file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    torch.testing.assert_close(layer.weight, source.weight)
    other_shape = serialise(torch.nn.Linear(3, 2).state_dict(), tmp_path / "c")
    for bad, prefix, message in (
        (content, "00000000", "the SHA-256 begins with .* not with 00000000; remove the file"),
        (pickle.dumps(PrintingPickle(), 2), None, "not a file of tensors only"),
        (serialise({"weight": PrintingPickle()}, tmp_path / "b"), None, "not a file of tensors only"),
        (serialise([torch.zeros(2)], tmp_path / "d"), None, "not a file of tensors only"),
        (serialise({"model": source.state_dict()}, tmp_path / "e"), None, "not a file of tensors only"),
        (other_shape, None, "has the shape .2, 3., the network expects"),
    ):
        path, entry = checkpoints(bad, prefix)
        with pytest.raises(UserError, match=message) as error:
            load_torchvision(layer, "hub", entry, "line")
        assert str(error.value).startswith(str(path))
        assert "\n" not in error.value.args[0]
    assert "must not run" not in capfd.readouterr().out


def test_an_unreachable_file_of_torchvision_is_named_with_its_digest_and_path(checkpoints, tmp_path):
    entry = SimpleNamespace(url="http://127.0.0.1:9/models/line-12345678.pth")
    with pytest.raises(UserError, match=r"fetch line-12345678.pth, its SHA-256 begins with 12345678, on a") as error:
        load_torchvision(torch.nn.Linear(2, 2), "hub", entry, "line")
    assert f"put it into {tmp_path / 'checkpoints'}, or give the path of a safetensors file" in str(error.value)
    assert list((tmp_path / "checkpoints").iterdir()) == []
