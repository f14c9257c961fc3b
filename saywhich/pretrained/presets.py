"""Presets of pretrained speakers and listeners, with sizes and licences that are shown before a download."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from saywhich.judging.judging_choices import DEFAULT_JUDGE


@dataclass(frozen=True)
class PublishedModel:
    """A published model: its name here, its repository on the Hugging Face hub, its licence, and its size in GB."""

    name: str
    repository: str
    licence: str
    size: float

    @property
    def is_cached(self) -> bool:
        """Return whether weights of the model lie in the hub's cache."""
        from huggingface_hub.constants import HF_HUB_CACHE

        folder = Path(HF_HUB_CACHE, f"models--{self.repository.replace('/', '--')}", "snapshots")
        return any(folder.glob("*/*.safetensors"))


@dataclass(frozen=True)
class Preset:
    """A speaker and a listener that go together."""

    speaker: PublishedModel
    listener: PublishedModel


CLIP_BASE = PublishedModel(DEFAULT_JUDGE, "timm/vit_base_patch32_clip_224.openai", "MIT", 0.6)
CLIP_LARGE = PublishedModel("open_clip/ViT-L-14.openai", "timm/vit_large_patch14_clip_224.openai", "MIT", 1.7)


def _make_hub_model(repository: str, licence: str, size: float) -> PublishedModel:
    return PublishedModel(f"hub/{repository}", repository, licence, size)


PRESETS = {
    "small": Preset(_make_hub_model("microsoft/git-base-coco", "MIT", 0.7), CLIP_BASE),
    "base": Preset(_make_hub_model("Salesforce/blip-image-captioning-large", "BSD-3-Clause", 1.9), CLIP_BASE),
    "large": Preset(_make_hub_model("HuggingFaceTB/SmolVLM-Instruct", "Apache-2.0", 4.5), CLIP_LARGE),
}


def confirm_downloads(models: list[PublishedModel], yes: bool) -> None:
    """Show sizes and licences of models outside the cache in a line on stderr, and ask for consent unless `yes`.

    Raises UserError where the answer is not yes, and where standard input is no terminal.
    """
    if not (missing := [model for model in models if not model.is_cached]):
        return
    sizes = ", ".join(f"{model.repository} (about {model.size:g} GB, {model.licence})" for model in missing)
    print(f"to download: {sizes}", end="\n" if yes else "; go on? [y/N] ", file=sys.stderr, flush=True)
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        print(file=sys.stderr)
        raise UserError("nothing was downloaded, since standard input is no terminal: give --yes to download")
    try:
        answer = input()
    except EOFError:  # Ctrl-D, which leaves the cursor behind the question
        print(file=sys.stderr)
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("nothing was downloaded: answer y to download, or give --yes")
