"""Text towers of CLIP and SigLIP of transformers, as retrievers and judges of captions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.errors import UserError
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.hub_captioner import network_config, plain_config
from pipeline.runtime.hub_loading import DUAL_ENCODERS, check_config, import_transformers, load_pretrained

KEPT = ("model_type", "text_config", "projection_dim")  # the part of a config that determines the text tower


class HubDualEncoder(DualEncoder):
    """The frozen text tower of a CLIP or SigLIP; its vision tower's outputs are the feature set `features`.

    The tokenizer is read from the model's folder, or from the hub or its cache, when the first caption is encoded.
    """

    def __init__(self, name: str, config: dict[str, Any], features: str) -> None:
        """Build the tower of the model `name` from the part KEPT of its `config`, with random weights.

        Raises UserError for a config of another kind.
        """
        nn.Module.__init__(self)
        hub = import_transformers()
        check_config(config, "its config")
        kind = config.get("model_type")
        if kind not in DUAL_ENCODERS:
            raise UserError(
                f"its config: expected model_type {', '.join(DUAL_ENCODERS)}; got {kind!r:.40}; "
                "name a retriever of these types"
            )
        self.features = features
        self.arguments = {"name": name, "config": config, "features": features}
        text = network_config(getattr(hub, DUAL_ENCODERS[kind].replace("Model", "TextConfig")), config["text_config"])
        more = {"projection_dim": config["projection_dim"]} if "projection_dim" in config else {}
        both = hub.CONFIG_MAPPING[kind](text_config=text, vision_config={"num_hidden_layers": 0}, **more)
        self.text: Any = getattr(hub, DUAL_ENCODERS[kind])(both)
        self.text.vision_model = nn.Identity()
        if hasattr(self.text, "visual_projection"):
            self.text.visual_projection = nn.Identity()
        self._name, self._padding = name, True if kind == "clip" else "max_length"  # SigLIP learned padded texts

    @classmethod
    def from_model(cls, name: str, whole: Any, features: str) -> Self:
        """Take the text tower out of the loaded model `whole`."""
        config = plain_config(whole)
        made = cls(name, {key: config[key] for key in KEPT if key in config}, features)
        wanted, given = made.text.state_dict(), whole.state_dict()
        made.text.load_state_dict({key: given[key] for key in wanted})
        return made

    @cached_property
    def _tokenizer(self) -> Any:
        return load_pretrained("AutoTokenizer", self._name)

    @property
    def max_tokens(self) -> int:
        return int(self.text.config.text_config.max_position_embeddings)

    def lengths(self, captions: Sequence[str]) -> Tensor:
        ids = self._tokenizer(list(captions), truncation=False, padding=False, verbose=False)["input_ids"]
        return torch.tensor([len(each) for each in ids])

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        inputs = self._tokenizer(
            list(captions), padding=self._padding, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        found = self.text.get_text_features(**inputs.to(next(self.parameters()).device))
        return F.normalize(found.pooler_output, dim=-1)
