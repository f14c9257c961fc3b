"""Choices and defaults of judging, for commands, Python and documents. This module must not import PyTorch."""

from __future__ import annotations

DEFAULT_JUDGE = "open_clip/ViT-B-32.openai"  # the model of the published CLIPScore
JUDGE_NAMES = (
    "open_clip/NAME.TAG",
    "open_clip/NAME.TAG=FILE.safetensors",
    "pac_s/NAME=FILE.safetensors",
    "hub/NAME",
)
JUDGE_FORMS = (
    f"a folder that saywhich export wrote (works offline), {', '.join(JUDGE_NAMES)}, or a folder of a CLIP or SigLIP "
    "model of transformers"
)
THUMBNAIL = "thumbnail"  # the encoder without weights
NETWORK_NAMES = ("NAME", "NAME=FILE.safetensors")
ENCODER_FORMS = f"{THUMBNAIL} (no weights), a judge's name, or a network of timm, {' or '.join(NETWORK_NAMES)}"
GALLERY_IMAGES = 10  # images in a hard gallery
