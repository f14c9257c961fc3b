"""A pretrained CLIP with its text encoder, as a judge and as a retriever."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import normalize

from pipeline.composition.reward_files import _check_lengths
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.errors import UserError
from pipeline.evaluation.judges import JudgedCaptions, TextJudge
from pipeline.features.clip import ClipNetwork
from pipeline.features.extractor import NetworkSettings
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.model_settings import PretrainedJudgeSettings
from pipeline.models.pretrained_encoder import load_pretrained_encoder
from pipeline.models.retriever import Retriever
from pipeline.runtime.torchvision_cpu import declare_operators
from pipeline.types import Message, make_caption_mask

SMALL = {
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 32},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    "embed_dim": 16,
}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Return settings of a small random CLIP, its features of three images, its network and its image vectors."""
    declare_operators()
    import open_clip

    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    save_file(open_clip.create_model("ViT-S-32-alt", **SMALL).state_dict(), folder / "clip.safetensors")
    section = {"network": "open_clip/ViT-S-32-alt", "weights": str(folder / "clip.safetensors"), "options": SMALL}
    network = ClipNetwork(NetworkSettings(image_size=32, **section))
    images = [network.prepare(Image.new("RGB", (40, 32), colour)) for colour in ("red", "green", "blue")]
    features = network(images)
    with FeatureWriter(folder, 3, network.pooled_size, network.regions_shape) as store:
        store.manifest.update(network.description)
        store.write(np.arange(3), features.pooled.numpy(), features.regions.numpy())
    section["features"] = "clip"
    return PretrainedJudgeSettings(**section), FeatureStore(folder), network, features.pooled


def test_embeddings_equal_clips_also_after_saving(clip, tmp_path):
    section, store, network, pooled = clip
    encoder = load_pretrained_encoder(section, store, CPU)
    texts, path = ["a red ball", "two dogs"], tmp_path / "weights"
    save_agents(path, {"listener": encoder})
    loaded = load_agent(path, "listener")
    assert isinstance(loaded, DualEncoder)
    assert loaded.features == "clip"
    for each in (encoder, loaded):
        with torch.no_grad():
            torch.testing.assert_close(each.encode_text(texts), normalize(network.encode_text(texts), dim=-1))
        judge = TextJudge(each, lambda rows: torch.from_numpy(store.pooled(rows.numpy())), CPU)
        image_vectors = judge.embed(JudgedCaptions(torch.zeros(2, 1), texts), torch.tensor([2, 0]))[1]
        torch.testing.assert_close(image_vectors, normalize(pooled[[2, 0]], dim=-1), atol=1e-3, rtol=1e-3)
    assert not any(name.startswith("text.visual") for name in loaded.state_dict())


def test_loading_without_open_clip_names_the_extra(clip, tmp_path, monkeypatch):
    section, store, _, _ = clip
    save_agents(tmp_path / "weights", {"listener": load_pretrained_encoder(section, store, CPU)})
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(UserError, match=r"open_clip is not installed: pip install 'saywhich\[vision\]'$"):
        load_agent(tmp_path / "weights", "listener")


def test_features_of_another_network_are_reported(clip):
    section, store, *_ = clip
    other = SimpleNamespace(manifest=store.manifest | {"network": "resnet50"})
    with pytest.raises(UserError, match=r"features.clip.network: expected open_clip/ViT"):
        load_pretrained_encoder(section, other, CPU)
    other = SimpleNamespace(manifest=store.manifest | {"vector": "mean_and_max"})
    with pytest.raises(UserError, match=r"features.clip.vector: expected null"):
        load_pretrained_encoder(section, other, CPU)


def test_equal_texts_have_bit_equal_embeddings(clip):
    encoder = load_pretrained_encoder(*clip[:2], CPU)
    assert not encoder.training
    texts = ["a red ball", "two dogs", "a red ball", "a cat"]
    text_vectors = TextJudge(encoder, None, CPU).encode_text(JudgedCaptions(torch.zeros(4, 1), texts))
    assert torch.equal(text_vectors[0], text_vectors[2])
    with torch.no_grad():
        torch.testing.assert_close(text_vectors, encoder.encode_text(texts))


def test_a_clip_retriever_encodes_the_text_of_captions_once_per_step(clip, monkeypatch):
    encoder, words = load_pretrained_encoder(*clip[:2], CPU), ("", "a", "red", "ball")
    retriever = Retriever(
        encoder, encoder.encode_image(clip[3]), 0.01, lambda row: " ".join(words[w] for w in row if w)
    )
    tokens = torch.tensor([[1, 3, 0], [1, 2, 3], [1, 3, 0]])
    message = Message(tokens, make_caption_mask(tokens), torch.arange(3), samples=1)
    encoded = []
    encode_text = encoder.encode_text
    monkeypatch.setattr(encoder, "encode_text", lambda texts: encoded.append(texts) or encode_text(texts))
    found = retriever.encode_text(message)
    torch.testing.assert_close(found, encode_text(["a ball", "a red ball", "a ball"]))
    assert torch.equal(found[0], found[2])
    assert retriever.encode_text(message.detach()) is found
    assert encoded == [["a ball", "a red ball"]]
    assert not found.requires_grad
    assert not retriever.differentiable


def test_a_caption_that_the_text_encoder_would_cut_off_is_reported(clip):
    encoder = load_pretrained_encoder(*clip[:2], CPU)
    assert encoder.count_tokens(["a red ball", "", " ".join(["ball"] * 20)]).tolist() == [5, 2, 22]
    words = ("", "a", "ball")

    def prepare_captions(length: int) -> SimpleNamespace:
        vocabulary = SimpleNamespace(decode=lambda row: " ".join(words[w] for w in row if w))
        tokens = torch.tensor([[1, 2] + [0] * (length - 2), [2] * length])
        return SimpleNamespace(folder="data/prepared", vocabulary=vocabulary, tokens=tokens)

    _check_lengths(encoder, prepare_captions(14))  # 14 words with BOS and EOS fill the context
    with pytest.raises(
        UserError, match=r"data/prepared: a caption has 17 tokens, and the text encoder takes 16: “ball"
    ):
        _check_lengths(encoder, prepare_captions(15))


def test_an_end_token_that_is_also_the_padding_counts_once(clip):
    """SigLIP's tokenizer ends and pads captions with the same token, and has no begin token."""
    encoder = load_pretrained_encoder(*clip[:2], CPU)

    def tokenize(captions: list[str], length: int) -> torch.Tensor:
        rows = [[2] * len(caption.split()[: length - 1]) for caption in captions]
        return torch.tensor([row + [1] * (length - len(row)) for row in rows])

    encoder.__dict__["_tokenizer"] = tokenize
    texts = ["a red ball", "", " ".join(["ball"] * 15), " ".join(["ball"] * 16), " ".join(["ball"] * 100)]
    assert encoder.count_tokens(texts).tolist() == [4, 1, 16, 17, 32]


def test_the_longest_captions_by_characters_are_checked_among_many(clip):
    encoder = load_pretrained_encoder(*clip[:2], CPU)
    # tokens are counted up to twice the context length
    assert encoder.count_tokens([" ".join(["ball"] * 100)]).tolist() == [32]
    texts = [f"w{n}" for n in range(1500)] + [" ".join(["ball"] * 20)]
    vocabulary = SimpleNamespace(decode=lambda row: texts[row[0]])
    prepared = SimpleNamespace(
        folder="data/prepared", vocabulary=vocabulary, tokens=torch.arange(len(texts)).unsqueeze(1)
    )
    with pytest.raises(UserError, match="a caption has 22 tokens"):
        _check_lengths(encoder, prepared)
