from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from pipeline.errors import UserError
from pipeline.features.extractor import NetworkSettings
from pipeline.features.networks import TimmNetwork, TorchvisionNetwork, _compute_timm_map
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.torchvision_cpu import declare_operators

SMALL = "mobilenetv3_small_050"


@pytest.fixture(scope="module")
def timm():
    declare_operators()
    return pytest.importorskip("timm")


@pytest.fixture(scope="module")
def weights(timm, tmp_path_factory):
    """Write the small network's random weights, in half precision except for counts, and return the file's path."""
    torch.manual_seed(0)
    state = timm.create_model(SMALL).state_dict()
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    save_file({k: v.half() if v.is_floating_point() else v for k, v in state.items()}, path)
    return path


def test_features_are_the_last_map_and_its_mean(timm, weights):
    network = TimmNetwork(NetworkSettings(SMALL, 64, str(weights)))
    torch.manual_seed(0)
    images = torch.randn(3, 3, 64, 64)
    pooled, regions, count, boxes = network(list(images))
    assert boxes is None
    assert network.regions_shape == (4, 288)
    assert network.pooled_size == 288
    assert count.tolist() == [4, 4, 4]
    with torch.inference_mode():
        expected = network.model.forward_features(images)  # (3, 288, 2, 2)
    torch.testing.assert_close(regions[:, 1], expected[:, :, 0, 1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(pooled, expected.mean((2, 3)), atol=1e-5, rtol=1e-4)
    assert network.description["weights"] == {"source": "small.safetensors", "sha256": compute_sha256(weights)}


def test_cells_average_the_map(timm, weights):
    images = [torch.randn(3, 64, 64)]
    fine, coarse = (TimmNetwork(NetworkSettings(SMALL, 64, str(weights), grid_size=cells)) for cells in (None, 1))
    assert coarse.regions_shape == (1, 288)
    torch.testing.assert_close(coarse(images)[1][:, 0], fine(images)[1].mean(1), atol=1e-5, rtol=1e-4)


def test_preprocessing_squashes_the_whole_image_and_takes_other_means(timm, weights):
    settings = NetworkSettings(SMALL, 64, str(weights))
    network = TimmNetwork(replace(settings, mean=(0.5, 0.5, 0.5), std=(0.25, 0.5, 0.5)))
    image = Image.new("RGB", (200, 50), (255, 0, 255))
    image.paste((255, 0, 0), (0, 0, 20, 50))  # the left tenth, which a crop would lose
    prepared = network.prepare(image)
    assert prepared.shape == (3, 64, 64)
    assert prepared[:, 32, 60].tolist() == [2.0, -1.0, 1.0]
    assert prepared[:, 32, 1].tolist() == [2.0, -1.0, -1.0]
    assert network.description["preprocessing"]["mean"] == (0.5, 0.5, 0.5)
    assert TimmNetwork(settings).description["preprocessing"]["mean"] == (0.485, 0.456, 0.406)


@pytest.mark.parametrize(
    ("name", "size", "cells"),
    [
        ("vit_tiny_patch16_224", 224, 196),
        pytest.param("swin_tiny_patch4_window7_224", 224, 49, marks=pytest.mark.slow),
    ],
)
def test_networks_that_end_in_tokens_or_channels_last_give_a_grid_too(timm, tmp_path, name, size, cells):
    torch.manual_seed(0)
    model = timm.create_model(name)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    network = TimmNetwork(NetworkSettings(name, size, str(tmp_path / "weights.safetensors")))
    assert network.regions_shape == (cells, model.num_features)
    pixels = torch.randn(1, 3, size, size)
    pooled, regions = network(list(pixels))[:2]
    with torch.inference_mode():
        output = network.model.forward_features(pixels)
    tokens = output[:, 1:] if output.dim() == 3 else output.flatten(1, 2)  # without the class token; row by row
    torch.testing.assert_close(regions, tokens, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(pooled, tokens.mean(1), atol=1e-4, rtol=1e-4)


def test_weights_options_and_names_that_do_not_fit_are_reported_in_one_line(timm, weights, tmp_path):
    for name, options, message in (
        (
            SMALL,
            {"num_classes": 10},
            r"classifier.weight: has the shape \(1000, 1024\), the network expects \(10, 1024\)",
        ),
        (SMALL, {"num_classes": 0}, "classifier.bias: has the shape .*, and the network has no such tensor"),
        ("resnet18", {}, "conv1.weight: is missing, the network expects"),
        (
            SMALL,
            {"nonsense": 1},
            "features.options: the network mobilenetv3_small_050 does not accept nonsense: 1 .allow",
        ),
        ("resnet0", {}, "features.network: timm has no network 'resnet0'"),
    ):
        with pytest.raises(UserError, match=message) as error:
            TimmNetwork(NetworkSettings(name, 64, str(weights), options))
        assert "\n" not in error.value.args[0]
    with pytest.raises(UserError, match="the weights of mobilenetv3_small_050 are missing; put the safetensors file"):
        TimmNetwork(NetworkSettings(SMALL, 64, str(tmp_path / "none.safetensors")))
    (tmp_path / "part.safetensors").write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match="not a complete safetensors file"):
        TimmNetwork(NetworkSettings(SMALL, 64, str(tmp_path / "part.safetensors")))


@pytest.mark.parametrize(
    ("name", "size", "options", "message"),
    [
        (
            SMALL,
            64,
            {"global_pool": "nonsense"},
            f"the network {SMALL} does not accept {{'global_pool': 'nonsense'}} .*; remove or",
        ),
        (
            f"{SMALL}.nonsense",
            64,
            {},
            f"features.network: Invalid pretrained tag .nonsense. for {SMALL}; name one of timm",
        ),
        (SMALL, 0, {}, f"features.image_size: the network {SMALL} cannot process an image of 0×0 pixels"),
    ],
)
def test_options_tags_and_sizes_that_timm_refuses_are_reported(timm, weights, name, size, options, message):
    with pytest.raises(UserError, match=message):
        TimmNetwork(NetworkSettings(name, size, str(weights), options))


def test_a_full_gpu_is_not_reported_as_a_wrong_image_size(timm, weights, monkeypatch):
    def fill_memory(self, model, *others):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("pipeline.features.networks.GridNetwork.__init__", fill_memory)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        TimmNetwork(NetworkSettings(SMALL, 64, str(weights)))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([torch.ones(1, 5, 8), torch.ones(1, 5, 8)], "does not end in one feature map"),
        (torch.ones(1, 8), "does not end in one feature map"),
        (torch.ones(1, 197, 8), r"form no square map \(number: 197\)"),
        (torch.ones(1, 1, 8), r"form no square map \(number: 1\)"),  # a class token alone
    ],
)
def test_a_network_of_timm_without_a_square_map_is_reported(features, message):
    model = SimpleNamespace(forward_features=lambda pixels: features, num_features=8)
    with pytest.raises(UserError, match=f"features.network: some of timm.*{message}; name another network"):
        _compute_timm_map(model, torch.ones(1, 3, 4, 4), "some")


def test_torchvisions_resnets_average_their_last_map_too(tmp_path):
    declare_operators()
    from torchvision import models

    torch.manual_seed(0)
    model = models.resnet18().eval()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    settings = NetworkSettings("torchvision/resnet18", 64, str(tmp_path / "weights.safetensors"))
    network = TorchvisionNetwork(settings)
    assert (network.pooled_size, network.regions_shape) == (512, (4, 512))
    assert network.description["preprocessing"]["mean"] == (0.485, 0.456, 0.406)
    image = torch.randn(3, 64, 64)
    pooled, regions = network([image])[:2]
    with torch.inference_mode():
        torch.testing.assert_close(model.fc(pooled), model(image[None]), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(regions.mean(1), pooled, atol=1e-5, rtol=1e-4)
    assert TorchvisionNetwork(replace(settings, grid_size=1)).regions_shape == (1, 512)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("torchvision/resnet0", {}, "torchvision has no network 'resnet0'"),
        ("torchvision/resnet18.V9", {}, "resnet18 has no weights 'V9'; name one of IMAGENET1K_V1"),
        (
            "torchvision/resnet18",
            {"nonsense": 1},
            "features.options: the network resnet18 does not accept nonsense: 1 .allow",
        ),
        (
            "torchvision/resnet18",
            {"num_classes": -1},
            "the network resnet18 does not accept .'num_classes': -1. .Trying",
        ),
        (
            "torchvision/mobilenet_v2",
            {},
            "mobilenet_v2 of torchvision does not end in a map that is averaged; name another network",
        ),
    ],
)
def test_an_unknown_network_of_torchvision_is_reported_in_one_line(name, options, message):
    with pytest.raises(UserError, match=message) as error:
        TorchvisionNetwork(NetworkSettings(name, 64, "hub", options))
    assert "\n" not in error.value.args[0]
