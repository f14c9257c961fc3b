"""Captioners of transformers and their tokenizers, by their name on the Hugging Face hub or from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.errors import UserError, reason
from pipeline.runtime.torchvision_cpu import declare_operators

CAPTIONERS = {
    "blip": "BlipForConditionalGeneration",
    "git": "GitForCausalLM",
    "vision-encoder-decoder": "VisionEncoderDecoderModel",
}


def library() -> Any:
    """transformers, which is an extra; UserError where it is not installed."""
    try:
        import transformers
    except ImportError:
        raise UserError("captioners of the Hugging Face hub need transformers: pip install 'saywhich[hub]'") from None
    declare_operators()  # its models import torchvision
    transformers.utils.logging.disable_progress_bar()
    return transformers


def opened(kind: str, name: str, **options: Any) -> Any:
    """The class `kind` of transformers, loaded by `name`; UserError where it is not on this machine and not fetched."""
    found = getattr(library(), kind)
    try:
        return found.from_pretrained(name, local_files_only=Path(name).is_dir(), **options)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{name}: no {kind} in a folder of this name, in the hub's cache or on the hub ({reason(error)}); run "
            f"hf download {name} --local-dir FOLDER where there is a network, put the folder on this machine and give "
            "its path instead of the name"
        ) from None


def captioner(name: str) -> Any:
    """The captioner `name` in evaluation mode and float32; UserError for another kind or missing weights."""
    kind = opened("AutoConfig", name).model_type
    if kind not in CAPTIONERS:
        raise UserError(f"{name}: is of the kind {kind}; captioners are {', '.join(CAPTIONERS)}")
    model, report = opened(CAPTIONERS[kind], name, dtype="float32", output_loading_info=True, use_safetensors=True)
    if lacking := sorted(key for key in report["missing_keys"] if "pooler" not in key):
        raise UserError(f"{name}: its weights lack {lacking[0]}; they are not those of a complete {CAPTIONERS[kind]}")
    model.has_pooler = not report["missing_keys"]  # an untrained one is no feature of an image
    return model.eval()
