import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tiny_judges import write_judge

from pipeline.errors import UserError
from pipeline.features.clip import ClipNetwork
from pipeline.features.extractor import NetworkSettings
from pipeline.runtime.torchvision_cpu import declare_operators

NAME = "open_clip/ViT-S-32-alt"
SMALL = {
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Return a small CLIP whose random weights are loaded from a file."""
    declare_operators()
    import open_clip

    torch.manual_seed(0)
    model = open_clip.create_model("ViT-S-32-alt", **SMALL)
    path = tmp_path_factory.mktemp("weights") / "clip.safetensors"
    save_file(model.state_dict(), path)
    return ClipNetwork(NetworkSettings(NAME, 64, str(path), SMALL))


def test_the_vector_is_the_embedding_and_the_regions_are_patches(clip):
    torch.manual_seed(0)
    image = torch.randn(3, 64, 64)
    pooled, regions, count, boxes = clip([image])
    assert (clip.pooled_size, clip.regions_shape, count.tolist(), boxes) == (256, (4, 64), [4], None)
    with torch.inference_mode():
        torch.testing.assert_close(pooled, clip.model.encode_image(image[None]), atol=1e-5, rtol=1e-4)
        visual = clip.model.visual  # by hand: the normalised tokens after all blocks; the first is the class token
        tokens = visual.ln_post(visual.transformer(visual._embeds(image[None])))
        torch.testing.assert_close(tokens[:, 0] @ visual.proj, pooled, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(regions, tokens[:, 1:], atol=1e-5, rtol=1e-4)
    assert regions.mean(2).abs().max() < 1e-4  # the output of a layer norm has the mean 0


def test_images_are_cropped_as_open_clip_does(clip):
    image = Image.new("RGB", (300, 100), "black")
    image.paste("white", (110, 0, 190, 100))  # the middle square is 100 … 200; a tenth at each side stays black
    prepared = clip.prepare(image)
    assert prepared.shape == (3, 64, 64)
    mean, std = torch.tensor([0.48145466, 0.4578275, 0.40821073]), torch.tensor([0.26862954, 0.26130258, 0.27577711])
    torch.testing.assert_close(prepared[:, 32, 32], (1 - mean) / std, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(prepared[:, 32, 1], -mean / std, atol=1e-3, rtol=1e-3)
    assert clip.description["preprocessing"]["resize_mode"] == "shortest"


def test_deviations_grid_sizes_and_options_can_be_set(clip, tmp_path):
    save_file(clip.model.state_dict(), tmp_path / "clip.safetensors")
    weights = str(tmp_path / "clip.safetensors")
    squash = {**SMALL, "force_preprocess_cfg": {"resize_mode": "squash"}}
    network = ClipNetwork(NetworkSettings(NAME, 64, weights, squash, std=(0.5, 0.5, 0.5), grid_size=1))
    assert network.regions_shape == (1, 64)
    assert network.description["preprocessing"]["resize_mode"] == "squash"
    assert tuple(network.description["preprocessing"]["std"]) == (0.5, 0.5, 0.5)
    image = Image.new("RGB", (300, 100), "black")
    image.paste("white", (0, 0, 30, 100))  # the left tenth, which a crop would lose
    prepared, mean = network.prepare(image), torch.tensor([0.48145466, 0.4578275, 0.40821073])
    assert prepared.shape == (3, 64, 64)
    torch.testing.assert_close(prepared[:, 32, 1], (1 - mean) / 0.5, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(prepared[:, 32, 40], -mean / 0.5, atol=1e-3, rtol=1e-3)
    cells, patches = network([prepared]).regions, clip([prepared]).regions
    torch.testing.assert_close(cells[:, 0], patches.mean(1), atol=1e-5, rtol=1e-4)


def test_text_embeddings_have_the_size_of_image_embeddings_and_ignore_case(clip):
    captions = ["a dog on a beach", "two men", "word " * 200]
    embedded = clip.encode_text(captions)
    assert embedded.shape == (3, clip.pooled_size)
    torch.testing.assert_close(clip.encode_text(captions[1:2])[0], embedded[1], atol=1e-5, rtol=1e-4)
    assert (embedded[0] - embedded[1]).abs().max() > 1e-4
    torch.testing.assert_close(clip.encode_text(["A  DOG on a beach "])[0], embedded[0])  # case and spaces do not count
    torch.testing.assert_close(clip.encode_text(["word " * 300])[0], embedded[2])


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("open_clip/ViT-B-99", "hub", "open_clip has no network 'ViT-B-99'"),
        ("open_clip/ViT-B-32", "hub", r"ViT-B-32 has no weights ''; name them as in open_clip/ViT-B-32.openai; it has"),
        ("open_clip/ViT-B-32.closed", "x.safetensors", "ViT-B-32 has no weights 'closed'"),
    ],
)
def test_an_unknown_network_or_weights_is_reported_in_one_line(name, weights, message):
    with pytest.raises(UserError, match=message) as error:
        ClipNetwork(NetworkSettings(name, 224, weights))
    assert "\n" not in error.value.args[0]


@pytest.mark.parametrize(
    ("part", "changed", "message"),
    [
        ("vision_cfg", {"patch_size": 0}, "by zero"),
        ("text_cfg", {"heads": 3}, "embed_dim must be divisible by num_heads"),
        ("text_cfg", {"heads": 0}, "embed_dim and num_heads must be greater than 0"),
        ("force_preprocess_cfg", {"resize_mode": "nonsense"}, "AssertionError"),
        ("force_preprocess_cfg", {"mean": [0.5, 0.5]}, "The size of tensor a"),
        ("force_preprocess_cfg", {"resize_mode": "longest", "fill_color": "x"}, "inappropriate fill"),
    ],
)
def test_options_that_open_clip_refuses_are_reported_in_one_line(clip, tmp_path, part, changed, message):
    save_file(clip.model.state_dict(), tmp_path / "clip.safetensors")
    options = {**SMALL, part: {**SMALL.get(part, {}), **changed}}
    line = f"^features.options: the network {NAME} does not accept .*{message}"
    with pytest.raises(UserError, match=line) as error:
        ClipNetwork(NetworkSettings(NAME, 64, str(tmp_path / "clip.safetensors"), options))
    assert "\n" not in error.value.args[0]


def test_an_image_size_that_the_network_does_not_take_is_reported(clip, tmp_path):
    save_file(clip.model.state_dict(), tmp_path / "clip.safetensors")
    with pytest.raises(UserError, match=f"^features.image_size: {NAME} does not take 16 pixels"):
        ClipNetwork(NetworkSettings(NAME, 16, str(tmp_path / "clip.safetensors"), SMALL))


def test_weights_of_the_hub_that_do_not_fit_the_options_are_reported(clip, tmp_path, monkeypatch):
    path = tmp_path / "clip.safetensors"
    save_file(clip.model.state_dict(), path)
    monkeypatch.setattr("pipeline.features.clip.fetch_hub_file", lambda *_: (path, {"source": "hub"}))
    options = {**SMALL, "vision_cfg": {**SMALL["vision_cfg"], "layers": 3}, "embed_dim": 256}
    with pytest.raises(UserError, match=r"^features.options: .* Missing key\(s\) in state_dict: .*resblocks.2"):
        ClipNetwork(NetworkSettings("open_clip/ViT-B-32.laion2b_s34b_b79k", 64, "hub", options))


def test_a_text_tower_that_cannot_be_fetched_is_reported(monkeypatch):
    def raise_no_connection(*_, **__):
        raise OSError("no connection")

    declare_operators()
    monkeypatch.setattr("open_clip.create_model", raise_no_connection)
    name = "open_clip/roberta-ViT-B-32.laion2b_s12b_b32k"
    with pytest.raises(UserError, match=rf"^features.network: {name} cannot be built \(no connection\); name another"):
        ClipNetwork(NetworkSettings(name, 224, "hub"))


def test_weights_of_openai_use_quickgelu_and_safetensors_of_the_hub(monkeypatch, tmp_path):
    """ViT-B-32.openai was trained with QuickGELU, which the network's name does not state."""
    import open_clip

    created = {}
    create = open_clip.create_model

    def create_small_model(name, **options):
        created["gelu"] = options.get("force_quick_gelu")
        created["model"] = create("ViT-S-32-alt", **{**options, **SMALL})
        return created["model"]

    monkeypatch.setattr(open_clip, "create_model", create_small_model)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"fetch open_clip_model.safetensors of timm/vit_base_patch32_clip_224.openai"):
        ClipNetwork(NetworkSettings("open_clip/ViT-B-32.openai", 64, "hub"))
    assert created["gelu"] is True
    assert any(type(part).__name__ == "QuickGELU" for part in created["model"].modules())


def test_siglip_reads_its_tokenizer_from_the_hubs_cache_or_reports_it_in_one_line(monkeypatch, tmp_path):
    declare_operators()
    import open_clip

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    small = {
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 32},
        "text_cfg": {"context_length": 16, "vocab_size": 80, "width": 16, "heads": 2, "layers": 1},
        "embed_dim": 16,
    }
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-B-16-SigLIP", **small)
    save_file(model.state_dict(), tmp_path / "siglip.safetensors")
    network = ClipNetwork(NetworkSettings("open_clip/ViT-B-16-SigLIP", 32, str(tmp_path / "siglip.safetensors"), small))
    line = r"^the tokenizer of ViT-B-16-SigLIP, timm/ViT-B-16-SigLIP, cannot be read from the hub's cache or fetched"
    with pytest.raises(UserError, match=line) as error:
        network.encode_text(["a red ball"])
    assert "\n" not in error.value.args[0]
    repository = tmp_path / "hub/models--timm--ViT-B-16-SigLIP"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("0" * 40)
    write_judge("siglip", repository / "snapshots" / ("0" * 40))
    found = network.encode_text(["a red ball", "a green dog"])
    tokens = network.tokenizer(["a red ball"])
    assert tokens.shape == (1, 16)
    with torch.no_grad():
        torch.testing.assert_close(found[:1], model.eval().encode_text(tokens))
    assert (found[0] - found[1]).abs().max() > 1e-4
