"""A judge from outside: a text encoder, and the vectors of images in its space, trained on other data (CLIP)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.errors import UserError
from pipeline.runtime.options import checked_options


class DualEncoder(nn.Module):
    """The text tower of an open_clip network; what its image tower saw is the set of features that it names.

    It reads captions as text, whatever their speaker's vocabulary. Nothing of it learns.
    """

    def __init__(self, architecture: str, options: dict[str, Any], features: str) -> None:
        """`architecture` and `options` as open_clip.create_model takes them."""
        from pipeline.runtime.torchvision_cpu import declare_operators

        super().__init__()
        declare_operators()
        import open_clip

        if architecture not in open_clip.list_models():  # it would take addresses and folders, too
            raise UserError(f"open_clip has no network {architecture!r}; see its list_models()")
        options = checked_options("open_clip", architecture, options)
        self.features = features
        self.arguments = {"architecture": architecture, "options": options, "features": features}
        logging.disable(logging.WARNING)  # it warns of weights that are not loaded yet
        try:
            device = torch.get_default_device()  # where only shapes are asked for, that of tensors without numbers
            self.text: Any = open_clip.create_model(architecture, device=device, pretrained_text=False, **options)
        finally:
            logging.disable(logging.NOTSET)
        self.text.visual = nn.Identity()
        self._tokens = open_clip.get_tokenizer(architecture, context_length=self.text.context_length)

    @property
    def most(self) -> int:
        """Tokens of the longest caption that it reads whole."""
        return int(self.text.context_length)

    def lengths(self, captions: Sequence[str]) -> Tensor:
        """(N,): tokens of N captions, with those that begin and end them; twice what is read whole at most."""
        import open_clip

        tokenise = open_clip.get_tokenizer(self.arguments["architecture"], context_length=2 * self.most)
        padding = tokenise([""])[0, -1]
        there = tokenise(list(captions)) != padding
        return there.shape[1] - there.flip(1).long().argmax(1)

    def hear(self, captions: Sequence[str]) -> Tensor:
        """(N, D) of length 1: N captions; what is too long is cut off."""
        return F.normalize(
            self.text.encode_text(self._tokens(list(captions)).to(next(self.parameters()).device)), dim=-1
        )

    def see(self, pooled: Tensor) -> Tensor:
        """(B, D) image vectors → (B, D) of length 1."""
        return F.normalize(pooled, dim=-1)
