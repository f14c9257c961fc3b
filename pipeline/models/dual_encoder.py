"""Judge or retriever that was trained elsewhere, such as CLIP: a text encoder for image vectors in the same space."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.errors import UserError
from pipeline.features.clip import open_tokenizer
from pipeline.runtime.extras import explain_missing_extra
from pipeline.runtime.options import check_options
from pipeline.runtime.torchvision_cpu import declare_operators


class DualEncoder(nn.Module):
    """The frozen text tower of an open_clip network; the image tower's outputs are the feature set `features`.

    It encodes captions as text, independent of the speaker's vocabulary.
    """

    def __init__(self, architecture: str, options: dict[str, Any], features: str) -> None:
        """Build the network from `architecture` and `options` of open_clip.create_model.

        Raises UserError for an architecture that open_clip does not list, and for options that are not allowed. Raises
        UserError, too, where open_clip is not installed.
        """
        super().__init__()
        declare_operators()
        with explain_missing_extra():
            import open_clip

        if architecture not in open_clip.list_models():  # open_clip would also accept addresses and folders
            raise UserError(f"open_clip has no network {architecture!r}; install a version that lists it")
        options = check_options("open_clip", architecture, options)
        self.features = features
        self.arguments = {"architecture": architecture, "options": options, "features": features}
        logging.disable(logging.WARNING)  # open_clip warns of weights that are not loaded yet
        try:
            device = torch.get_default_device()  # the meta device where only shapes are needed
            self.text: Any = open_clip.create_model(architecture, device=device, pretrained_text=False, **options)
        finally:
            logging.disable(logging.NOTSET)
        self.text.visual = nn.Identity()

    @cached_property
    def _tokenizer(self) -> Any:
        """Return the tokenizer; the tokenizers of some networks are downloaded."""
        return open_tokenizer(str(self.arguments["architecture"]), self.max_tokens)

    @property
    def max_tokens(self) -> int:
        """Return the maximum number of tokens of a caption; longer captions are truncated."""
        return int(self.text.context_length)

    def count_tokens(self, captions: Sequence[str]) -> Tensor:
        """Count the tokens of N captions, (N,), with begin and end tokens, up to twice `max_tokens`.

        Raises UserError as `open_tokenizer` does.
        """
        limit = 2 * self.max_tokens
        empty, full = self._tokenizer(["", "a " * limit], limit)  # their last tokens: padding, and the end token
        pads_with_end = int(full[-1] == empty[-1])  # as SigLIP's tokenizer does
        positions: Tensor = (self._tokenizer(list(captions), limit) != empty[-1]) * torch.arange(1, limit + 1)
        return (positions.amax(1) + pads_with_end).clamp(max=limit)

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        """Encode N captions as unit vectors (N, D); captions above `max_tokens` are truncated.

        Raises UserError as `open_tokenizer` does.
        """
        return F.normalize(
            self.text.encode_text(self._tokenizer(list(captions)).to(next(self.parameters()).device)), dim=-1
        )

    def encode_image(self, pooled: Tensor) -> Tensor:
        """Normalise image vectors `pooled` (B, D) to length 1."""
        return F.normalize(pooled, dim=-1)
