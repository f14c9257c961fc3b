"""A judge that was trained elsewhere: taken in by the real stage, and heard through text."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from pipeline.config.views import View
from pipeline.errors import UserError
from pipeline.evaluation.judges import Spoken, TextJudge
from pipeline.features.clip import ClipNetwork
from pipeline.features.extractor import NetworkSettings
from pipeline.features.images import open_image
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.retriever import Retriever
from pipeline.models.weights import load_agent, save_agents
from pipeline.runtime.torchvision_cpu import declare_operators
from pipeline.types import Message, caption_mask
from pipeline.workflow.build_dual_encoder import dual_encoder
from pipeline.workflow.build_retriever import _check_lengths

SMALL = {
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 32},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    "embed_dim": 16,
}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A section of params.yaml with a small CLIP of drawn weights, and three images."""
    declare_operators()
    import open_clip

    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    save_file(open_clip.create_model("ViT-S-32-alt", **SMALL).state_dict(), folder / "clip.safetensors")
    for i, colour in enumerate(("red", "green", "blue")):
        Image.new("RGB", (40, 32), colour).save(folder / f"{i}.png")
    section = {"network": "open_clip/ViT-S-32-alt", "weights": str(folder / "clip.safetensors"), "options": SMALL}
    section |= {"images": str(folder), "image_size": 32, "batch": 2}
    return View({"clip": section}, ("clip",), "pretrain@clip").clip, folder


class Prepared(SimpleNamespace):
    def __len__(self) -> int:
        return 3

    def file(self, row: int) -> str:
        return f"{row}.png"


def test_texts_and_images_are_clips_own_also_once_they_were_written(clip, tmp_path):
    section, folder = clip
    encoder = dual_encoder(section, Prepared(), CPU)
    network = ClipNetwork(NetworkSettings(section.network, 32, section.weights, SMALL))
    texts = ["a red ball", "two dogs"]
    path = tmp_path / "weights.safetensors"
    save_agents(path, {"listener": encoder})
    written = load_agent(path, "listener")
    assert isinstance(written, DualEncoder)
    for each in (encoder, written):
        with torch.no_grad():
            torch.testing.assert_close(each.hear(texts), torch.nn.functional.normalize(network.text(texts), dim=-1))
        images = [network.prepare(open_image(folder / f"{i}.png")) for i in (2, 0)]
        seen = torch.nn.functional.normalize(network(images).pooled, dim=-1)
        torch.testing.assert_close(each.look(torch.tensor([2, 0])), seen)
    assert not any(name.startswith("text.visual") for name in written.state_dict())
    assert json.dumps(encoder.arguments)


def test_equal_texts_are_heard_alike_to_the_bit(clip):
    encoder = dual_encoder(clip[0], Prepared(), CPU)
    texts = ["a red ball", "two dogs", "a red ball", "a cat"]
    heard = TextJudge(encoder, CPU).hear(Spoken(torch.zeros(4, 1), texts))
    assert torch.equal(heard[0], heard[2])
    with torch.no_grad():
        torch.testing.assert_close(heard, encoder.hear(texts))


def test_as_a_retriever_it_hears_what_the_speaker_s_words_spell_once_a_step(clip, monkeypatch):
    encoder, words = dual_encoder(clip[0], Prepared(), CPU), ("", "a", "red", "ball")
    retriever = Retriever(
        encoder, encoder.look(torch.arange(3)), 0.01, lambda row: " ".join(words[w] for w in row if w)
    )
    tokens = torch.tensor([[1, 3, 0], [1, 2, 3], [1, 3, 0]])
    message = Message(tokens, caption_mask(tokens), torch.arange(3), samples=1)
    asked = []
    hear = encoder.hear
    monkeypatch.setattr(encoder, "hear", lambda texts: asked.append(texts) or hear(texts))
    found = retriever.hear(message)
    torch.testing.assert_close(found, hear(["a ball", "a red ball", "a ball"]))
    assert torch.equal(found[0], found[2])
    assert retriever.hear(message.detached()) is found
    assert asked == [["a ball", "a red ball"]]
    assert not found.requires_grad
    assert not retriever.differentiable


def test_a_caption_that_the_text_encoder_would_cut_off_is_one_line(clip):
    encoder = dual_encoder(clip[0], Prepared(), CPU)
    assert encoder.lengths(["a red ball", "", " ".join(["ball"] * 20)]).tolist() == [5, 2, 22]
    words = ("", "a", "ball")

    def prepared(length: int) -> SimpleNamespace:
        vocabulary = SimpleNamespace(decode=lambda row: " ".join(words[w] for w in row if w))
        tokens = torch.tensor([[1, 2] + [0] * (length - 2), [2] * length])
        return SimpleNamespace(folder="data/prepared", vocabulary=vocabulary, tokens=tokens)

    _check_lengths(encoder, prepared(14))  # and two tokens that begin and end it
    with pytest.raises(
        UserError, match=r"data/prepared: a caption has 17 tokens, and the text encoder takes 16: “ball"
    ):
        _check_lengths(encoder, prepared(15))
