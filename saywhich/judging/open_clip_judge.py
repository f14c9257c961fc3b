"""CLIP models of open_clip as judges of captions: weights from the Hugging Face hub, or a safetensors file."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.errors import UserError
from pipeline.features.clip import OPEN_CLIP, ClipNetwork
from pipeline.features.extractor import NetworkSettings
from pipeline.features.network_weights import HUB, UnreachableWeightsError
from pipeline.runtime.torchvision_cpu import declare_operators
from saywhich.judging.clip_metrics import CLIP_SCORE, ClipMetric
from saywhich.judging.foreign_captions import find_foreign_captions, find_foreign_to_hub_tokenizer
from saywhich.judging.photo_vectors import PreparedPhoto
from saywhich.photos import Photo, open_photo

OFFLINE = "an exported model works offline: --judge DIR"


@contextmanager
def silence_hub() -> Iterator[None]:
    """Suppress the hub's messages about each download attempt; the error explains how to fetch the weights."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class OpenClipJudge:
    """A model of open_clip; a `CaptionJudge`."""

    def __init__(
        self,
        name: str,
        weights: str = HUB,
        options: Mapping[str, Any] | None = None,
        image_size: int = 0,
        metric: ClipMetric | None = None,
    ) -> None:
        """Build the model `name`, such as open_clip/ViT-B-32.openai, with `weights` HUB or a safetensors file.

        `image_size` 0 stands for the architecture's size. `metric` is the published score by these weights; None
        stands for CLIPScore, unless the model is a SigLIP. Raises UserError for an unknown model, and where the weights
        cannot be loaded or fetched.
        """
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        settings = NetworkSettings(name, image_size or _get_image_size(name), weights, options=options or {})
        try:
            with silence_hub():
                self._network = ClipNetwork(settings, device)
        except UnreachableWeightsError:
            raise UserError(_explain_unreachable(name)) from None
        except UserError as error:
            text = str(error).replace("features.network: ", "").replace("features.weights: ", "")
            raise UserError(f"--judge {name}: {text}") from None
        self.name = name
        self.size = self._network.pooled_size
        self.metric = metric or (None if "siglip" in name.lower() else CLIP_SCORE)
        self.temperature = float(self._network.model.logit_scale.detach().neg().exp())
        description = json.dumps(self._network.description, sort_keys=True, default=str)
        self.digest = hashlib.sha256(f"judge {description}".encode()).hexdigest()

    def prepare(self, photo: Photo) -> PreparedPhoto:
        with open_photo(photo, 28) as image:
            return {"pixels": self._network.prepare(image)}

    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        images = self._network([each["pixels"] for each in prepared]).pooled
        return normalize(images.float(), dim=1).cpu().numpy()

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return normalize(self._network.encode_text(texts).float(), dim=1).cpu()

    def find_truncated(self, texts: Sequence[str]) -> list[str]:
        limit = self._network.model.context_length
        tokens, longer = (self._network.tokenise(["", *texts], length) for length in (limit, limit + 1))
        # the token after the limit does not suffice: SigLIP pads with the token that ends a text
        truncated = (longer[:, limit] != longer[0, limit]) | (longer[:, :limit] != tokens).any(1)
        return [text for text, is_truncated in zip(texts, truncated[1:].tolist(), strict=True) if is_truncated]

    def find_unknown(self, texts: Sequence[str]) -> list[str]:
        if all(text.isascii() for text in texts):
            return []
        tokenizer = self._network.tokenizer
        if hasattr(tokenizer, "tokenizer"):
            return find_foreign_to_hub_tokenizer(texts, tokenizer.tokenizer)
        return find_foreign_captions(texts, tokenizer.encode)  # open_clip's own tokenizer has no unknown token


def _get_image_size(name: str) -> int:
    """Return the side of the architecture's square input, in pixels."""
    declare_operators()
    import open_clip

    config = open_clip.get_model_config(name.removeprefix(OPEN_CLIP).partition(".")[0]) or {}
    size = config.get("vision_cfg", {}).get("image_size", 224)
    return int(size[0] if isinstance(size, list | tuple) else size)


def _explain_unreachable(name: str) -> str:
    import open_clip

    architecture, _, tag = name.removeprefix(OPEN_CLIP).partition(".")
    repository, _, file = (open_clip.get_pretrained_cfg(architecture, tag) or {}).get("hf_hub", "").rpartition("/")
    file = (file or "open_clip_model.safetensors").replace("pytorch_model.bin", "model.safetensors")
    return (
        f"--judge {name}: its weights are not on this machine and cannot be fetched; where there is a network, run "
        f"`hf download {repository} {file} --local-dir FOLDER` and give --judge {name}=FOLDER/{file}; {OFFLINE}"
    )
