"""Tiny dual encoders of the library transformers with random weights, in folders in the form of the hub."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from pipeline.runtime.hub_loading import import_transformers

# SigLIP 2 with a fixed image size has SigLIP's layers and SigLIP 2's tokenizer
MODELS = {"clip": "CLIPModel", "siglip": "SiglipModel", "siglip2": "Siglip2Model", "siglip2_fixed": "SiglipModel"}
SENTENCES = ("a photo depicts a red ball on the box", "a green dog", "the blue dog on a yellow box")
LONGEST = 16  # tokens of a text
SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def write_judge(family: str, folder: Path, longest: int = LONGEST) -> None:
    """Write a model of a family of MODELS with `longest` text positions, and its processor, into `folder`."""
    hub = import_transformers()
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    processor, vocabulary_size, special_ids = {
        "clip": _make_clip, "siglip": _make_siglip, "siglip2": _make_siglip2, "siglip2_fixed": _make_siglip2_fixed,
    }[family](hub, folder)  # fmt: skip
    text = {**SIZES, **special_ids, "vocab_size": vocabulary_size, "max_position_embeddings": longest}
    vision = {**SIZES, "patch_size": 16, **({"num_patches": 256} if family == "siglip2" else {"image_size": 32})}
    projection = {"projection_dim": 12} if family == "clip" else {}
    model_class = MODELS[family]
    if family != "clip":
        text["projection_size"] = SIZES["hidden_size"]
    config = getattr(hub, model_class.replace("Model", "Config"))(text_config=text, vision_config=vision, **projection)
    model = getattr(hub, model_class)(config)
    with torch.no_grad():  # larger weights, so that embeddings differ between words and between images
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def _number_letters(*special: str) -> dict[str, int]:
    return {token: number for number, token in enumerate((*special, *sorted(set("".join(SENTENCES)) - {" "})))}


def _make_clip(hub: Any, folder: Path) -> tuple[Any, int, dict[str, int]]:
    letters = _number_letters()
    vocabulary = {token: n for n, token in enumerate((*letters, *(f"{letter}</w>" for letter in letters)))}
    begin, end = len(vocabulary), len(vocabulary) + 1
    vocabulary |= {"<|startoftext|>": begin, "<|endoftext|>": end}
    tokenizer = hub.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=LONGEST)
    images = hub.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    special_ids = {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": end}
    return hub.CLIPProcessor(images, tokenizer), len(vocabulary), special_ids


def _make_siglip(hub: Any, folder: Path) -> tuple[Any, int, dict[str, int]]:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20), model_writer=model, vocab_size=60, model_type="unigram",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, hard_vocab_limit=False, num_threads=1,
    )  # fmt: skip
    (folder / "spiece.model").write_bytes(model.getvalue())
    tokenizer = hub.SiglipTokenizer(str(folder / "spiece.model"), model_max_length=LONGEST)
    special_ids = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 1}
    images = hub.SiglipImageProcessor(size={"height": 32, "width": 32})
    return hub.SiglipProcessor(images, tokenizer), 80, special_ids


def _make_siglip2_fixed(hub: Any, folder: Path) -> tuple[Any, int, dict[str, int]]:
    processor, vocabulary_size, special_ids = _make_siglip2(hub, folder)
    images = hub.SiglipImageProcessor(size={"height": 32, "width": 32})
    return hub.SiglipProcessor(images, processor.tokenizer), vocabulary_size, special_ids


def _make_siglip2(hub: Any, folder: Path) -> tuple[Any, int, dict[str, int]]:
    byte_tokens = (f"<0x{number:02X}>" for number in range(256))
    vocabulary = _number_letters("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁")
    vocabulary |= {token: len(vocabulary) + number for number, token in enumerate(byte_tokens)}
    tokenizer = hub.Siglip2Tokenizer(vocab=vocabulary, merges=[], model_max_length=LONGEST)
    special_ids = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
    return hub.Siglip2Processor(hub.Siglip2ImageProcessor(), tokenizer), len(vocabulary), special_ids
