"""Tiny captioners of every family, with random weights and their own processors."""

import json
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_captioners import write_captioner

from pipeline.runtime.hub_loading import import_transformers

FAMILIES = ("blip", "blip-2", "blip-2-t5", "git", "gpt2", "florence2", "idefics3", "smolvlm", "qwen2_5_vl")
PROMPT_KINDS = ("blip-2", "blip-2-t5", "florence2", "idefics3", "smolvlm", "qwen2_5_vl", "qwen2_vl")  # with a prompt
TEXTS = ["a red ball on the box", "the green dog is on a yellow box", "Describe this photo in one short sentence."]
LETTERS = [*string.ascii_letters, *string.digits, "?!.,:<>_\n"]
SIDE = 32  # pixels
WORDS = 124  # vocabulary size of the models
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {% for part in message.content %}{% if part.type == 'image' %}"
    "IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant:"
    "{% endif %}"
)


def write_pretrained(family: str, folder: Path) -> Path:
    """Write a complete captioner of the family into `folder`, with its processor; return `folder`."""
    torch.manual_seed(0)
    if family in ("blip", "git", "gpt2"):
        write_captioner(family, folder)
        _save_parts(family, folder)
    else:
        writers = {
            "blip-2": _write_blip2,
            "blip-2-t5": _write_blip2_t5,
            "florence2": _write_florence2,
            "idefics3": _write_idefics3,
        }
        writers |= {"smolvlm": _write_smolvlm, "qwen2_5_vl": _write_qwen, "qwen2_vl": _write_qwen2}
        writers[family](import_transformers(), folder)
    return folder


def _save_parts(family: str, folder: Path) -> None:
    """Write the processor of BLIP or GIT, or the image processor of a VisionEncoderDecoderModel."""
    hub = import_transformers()
    size = {"size": {"height": 16, "width": 16}}
    tokenizer = hub.AutoTokenizer.from_pretrained(folder)
    (folder / "preprocessor_config.json").unlink()
    if family == "blip":
        hub.BlipProcessor(hub.BlipImageProcessor(**size), tokenizer).save_pretrained(folder)
    elif family == "git":
        crop = {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}
        hub.GitProcessor(hub.CLIPImageProcessor(**crop), tokenizer).save_pretrained(folder)
    else:
        hub.ViTImageProcessor(**size).save_pretrained(folder)


def _train_tokenizer(*special: str, **names: str) -> Any:
    """Train a byte-level tokenizer on TEXTS and LETTERS; return it and the names of its special tokens."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE

    plain = Tokenizer(BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<pad>", "<s>", "</s>", *special], show_progress=False
    )
    plain.train_from_iterator(TEXTS * 5 + LETTERS, trainer)
    return plain, {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", **names}


def _save(model: Any, processor: Any, folder: Path) -> None:
    with torch.no_grad():  # larger weights, so that words depend on the photo and on earlier words
        for name, parameter in model.named_parameters():
            scale = 0.05 if name.endswith("bias") or parameter.dim() < 2 else 0.25
            parameter.add_(scale * torch.randn_like(parameter))
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)


ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def _write_blip2(hub: Any, folder: Path) -> None:
    text = {"model_type": "opt", "hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
            "word_embed_proj_dim": 16, "max_position_embeddings": 128, "vocab_size": WORDS, **ENDS}  # fmt: skip
    _save_blip2(hub, text, folder)


def _write_blip2_t5(hub: Any, folder: Path) -> None:
    """Write a BLIP-2 whose T5 is gated and does not scale its output, like FLAN-T5."""
    text = {"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2,
            "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0,
            "initializer_factor": 0.1, "vocab_size": WORDS, **ENDS}  # fmt: skip
    _save_blip2(hub, text, folder)


def _save_blip2(hub: Any, text: dict[str, Any], folder: Path) -> None:
    plain, names = _train_tokenizer("<image>")
    tokenizer = hub.PreTrainedTokenizerFast(tokenizer_object=plain, **names)
    vision = {**TEXT, "image_size": SIDE, "patch_size": 16}
    query = {**TEXT, "encoder_hidden_size": 16, "vocab_size": 40}
    config = hub.Blip2Config(
        vision_config=vision, qformer_config=query, text_config=text, num_query_tokens=3, image_token_index=3
    )
    processor = hub.Blip2Processor(
        hub.BlipImageProcessor(size={"height": SIDE, "width": SIDE}), tokenizer, num_query_tokens=3
    )
    _save(hub.Blip2ForConditionalGeneration(config), processor, folder)


def _write_florence2(hub: Any, folder: Path) -> None:
    plain, names = _train_tokenizer("<image>")
    tokenizer = hub.PreTrainedTokenizerFast(
        tokenizer_object=plain, extra_special_tokens={"image_token": "<image>"}, **names
    )
    vision = {
        "depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1],
        "patch_prenorm": [False, True], "embed_dim": [8, 16], "num_heads": [2, 2], "num_groups": [2, 2],
        "window_size": 4, "projection_dim": 16, "max_position_embeddings": 20,
    }  # fmt: skip
    text = {"model_type": "bart", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": WORDS,
            "max_position_embeddings": 128, "decoder_start_token_id": 2, "forced_eos_token_id": None,
            **ENDS}  # fmt: skip
    config = hub.Florence2Config(text_config=text, vision_config=vision, image_token_id=3, **ENDS)
    images = hub.CLIPImageProcessor(size={"height": SIDE, "width": SIDE}, do_center_crop=False)
    images.image_seq_length = 17  # 4 × 4 patches and their mean
    _save(hub.Florence2ForConditionalGeneration(config), hub.Florence2Processor(images, tokenizer), folder)


def _write_idefics3(hub: Any, folder: Path) -> None:
    """Write SmolVLM's first generation."""
    images = hub.Idefics3ImageProcessor(size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE})
    _save_tiled(hub, "Idefics3", images, folder)


def _write_smolvlm(hub: Any, folder: Path) -> None:
    """Write SmolVLM's second generation; skip the test where its processor's package is missing."""
    pytest.importorskip("num2words", reason="needs num2words of the extra: pip install 'saywhich[hub]'")
    sizes = {"size": {"longest_edge": 2 * SIDE}, "max_image_size": {"longest_edge": SIDE}}
    _save_tiled(hub, "SmolVLM", hub.SmolVLMImageProcessor(**sizes), folder, hub.SmolVLMVideoProcessor(**sizes))


def _save_tiled(hub: Any, kind: str, images: Any, folder: Path, *videos: Any) -> None:
    rows = [f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)]
    plain, names = _train_tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *rows)
    tokenizer = hub.PreTrainedTokenizerFast(tokenizer_object=plain, **names)
    vision = {**TEXT, "image_size": SIDE, "patch_size": 8}
    text = {"model_type": "llama", **TEXT, "vocab_size": WORDS, "num_key_value_heads": 2, **ENDS}
    config = getattr(hub, f"{kind}Config")(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=3, **ENDS
    )
    processor = getattr(hub, f"{kind}Processor")(
        images, tokenizer, *videos, image_seq_len=4, chat_template=TEMPLATE.replace("IMAGE", "<image>")
    )
    _save(getattr(hub, f"{kind}ForConditionalGeneration")(config), processor, folder)


def _write_qwen(hub: Any, folder: Path) -> None:
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 16,
              "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [0]}  # fmt: skip
    _save_qwen(hub, "Qwen2_5_VL", vision, 2, folder)


def _write_qwen2(hub: Any, folder: Path) -> None:
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "mlp_ratio": 2, "num_heads": 2, "patch_size": 14}
    _save_qwen(hub, "Qwen2VL", vision, 1, folder)


def _save_qwen(hub: Any, kind: str, vision: dict[str, Any], key_value_heads: int, folder: Path) -> None:
    image_tokens = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
    plain, names = _train_tokenizer(*image_tokens, "<|video_pad|>")
    tokenizer = hub.Qwen2Tokenizer(tokenizer_object=plain, **names)
    text = {**TEXT, "vocab_size": WORDS, "num_key_value_heads": key_value_heads, "max_position_embeddings": 512, **ENDS,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}}  # fmt: skip
    config = getattr(hub, f"{kind}Config")(
        vision_config=vision, text_config=text, vision_start_token_id=3, image_token_id=4, vision_end_token_id=5,
        video_token_id=6, **ENDS,
    )  # fmt: skip
    images = hub.Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56)
    processor = getattr(hub, f"{kind}Processor")(
        images, tokenizer, hub.Qwen2VLVideoProcessor(), chat_template=TEMPLATE.replace("IMAGE", "".join(image_tokens))
    )
    _save(getattr(hub, f"{kind}ForConditionalGeneration")(config), processor, folder)


class StepRecorder:
    """A logits processor that records the tokens and the scores of each step, without a change."""

    def __init__(self) -> None:
        self.steps: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.steps.append((tokens.clone(), scores.clone()))
        return scores


def change_json(file: Path, **values: object) -> None:
    """Change values of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
