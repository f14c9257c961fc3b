"""Tiny captioners of the library transformers with random weights, in folders in the form of the hub."""

import json
from pathlib import Path
from typing import Any

import torch

from pipeline.runtime.hub_loading import import_transformers

KINDS = ("blip", "git", "vision-encoder-decoder", "gpt2")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    "a",
    "the",
    "red",
    "green",
    "blue",
    "yellow",
    "black",
    "ball",
    "box",
    "on",
    "white",
    "is",
    "whi",
    "##te",
    "##s",
)
PAD, BEGIN, END = 0, 2, 3
IMAGE, REGIONS = 16, 5  # pixels a side; tokens of the vision tower
BLIP_BEGIN = len(SPECIAL) + len(WORDS)  # like BLIP's [DEC], a token that the tokenizer lacks
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TOWER = {**SIZES, "image_size": IMAGE, "patch_size": 8}


def write_tokenizer(folder: Path) -> None:
    """Write a BERT tokenizer with the vocabulary SPECIAL and WORDS into `folder`."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece

    hub = import_transformers()
    plain = Tokenizer(WordPiece({word: i for i, word in enumerate((*SPECIAL, *WORDS))}, unk_token="[UNK]"))
    plain.normalizer = normalizers.BertNormalizer(lowercase=True)
    plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    plain.decoder = decoders.WordPiece(prefix="##")
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    hub.PreTrainedTokenizerFast(tokenizer_object=plain, **names).save_pretrained(folder)


def write_captioner(kind: str, folder: Path) -> Any:
    """Write a captioner with its tokenizer and image preprocessing into `folder`; return the model."""
    hub = import_transformers()
    torch.manual_seed(0)
    size = len(SPECIAL) + len(WORDS) + 1
    ends = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD}
    text = {**SIZES, **ends, "vocab_size": size, "max_position_embeddings": 32}
    if kind == "blip":
        text |= {"bos_token_id": BLIP_BEGIN, "sep_token_id": END, "encoder_hidden_size": 24}
        tower = {**TOWER, "hidden_size": 24}
        model = hub.BlipForConditionalGeneration(hub.BlipConfig(text_config=text, vision_config=tower))
    elif kind == "git":
        model = hub.GitForCausalLM(hub.GitConfig(vision_config={**TOWER, "hidden_size": 24}, **text))
    else:
        encoder = hub.ViTConfig(**{**TOWER, "hidden_size": 24})
        decoder: Any = hub.BertConfig(is_decoder=True, add_cross_attention=True, **text)
        if kind == "gpt2":
            decoder = hub.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, add_cross_attention=True,
                                     vocab_size=size, **ends)  # fmt: skip
        config = hub.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
        config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = BEGIN, END, PAD
        model = hub.VisionEncoderDecoderModel(config)
        model.generation_config.decoder_start_token_id = BEGIN
        model.generation_config.eos_token_id, model.generation_config.pad_token_id = END, PAD
    with torch.no_grad():  # larger weights, so that each token depends on the image and the earlier tokens
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        if kind in ("blip", "git"):  # a larger bias of EOS, so that some captions end
            (model.text_decoder if kind == "blip" else model).get_output_embeddings().bias[END] += 1.0
    model.eval().save_pretrained(folder)
    write_tokenizer(folder)
    processor = {
        "size": {"height": IMAGE, "width": IMAGE},
        "image_mean": [0.4, 0.5, 0.6],
        "image_std": [0.2, 0.25, 0.3],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model
