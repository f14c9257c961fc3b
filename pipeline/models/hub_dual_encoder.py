"""Text towers of CLIP and SigLIP from the transformers library, as retrievers and judges of captions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.errors import UserError
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.hub_captioner import build_network_config, serialise_config
from pipeline.runtime.hub_loading import DUAL_ENCODERS, check_config, import_transformers, load_pretrained

CONFIG_KEYS = ("model_type", "text_config", "projection_dim")  # the keys of a config that determine the text tower


class HubDualEncoder(DualEncoder):
    """Frozen text tower of CLIP or SigLIP; the feature set `features` holds the outputs of its vision tower.

    The tokenizer is read from the model's folder, or from the hub or its cache, when the first caption is tokenised.
    """

    def __init__(self, name: str, config: dict[str, Any], features: str) -> None:
        """Build the text tower of the model `name` with random weights, from the keys CONFIG_KEYS of its `config`.

        Raises UserError for a config of another model type, and as `check_config` does.
        """
        nn.Module.__init__(self)
        hub = import_transformers()
        check_config(config, "its config")
        model_type = config.get("model_type")
        if model_type not in DUAL_ENCODERS:
            raise UserError(
                f"its config: expected model_type {', '.join(DUAL_ENCODERS)}; got {model_type!r:.40}; "
                "name a retriever of these types"
            )
        self.features = features
        self.arguments = {"name": name, "config": config, "features": features}
        text_config = build_network_config(
            getattr(hub, DUAL_ENCODERS[model_type].replace("Model", "TextConfig")), config["text_config"]
        )
        projection = {"projection_dim": config["projection_dim"]} if "projection_dim" in config else {}
        whole_config = hub.CONFIG_MAPPING[model_type](
            text_config=text_config, vision_config={"num_hidden_layers": 0}, **projection
        )
        self.text: Any = getattr(hub, DUAL_ENCODERS[model_type])(whole_config)
        self.text.vision_model = nn.Identity()
        if hasattr(self.text, "visual_projection"):
            self.text.visual_projection = nn.Identity()
        self._name = name
        self._padding = True if model_type == "clip" else "max_length"  # SigLIP was trained on padded texts

    @classmethod
    def from_model(cls, name: str, model: Any, features: str) -> Self:
        """Return an encoder with the weights of the text tower of the loaded `model`."""
        config = serialise_config(model)
        encoder = cls(name, {key: config[key] for key in CONFIG_KEYS if key in config}, features)
        weights, model_weights = encoder.text.state_dict(), model.state_dict()
        encoder.text.load_state_dict({key: model_weights[key] for key in weights})
        return encoder

    @cached_property
    def _tokenizer(self) -> Any:
        return load_pretrained("AutoTokenizer", self._name)

    @property
    def max_tokens(self) -> int:
        return int(self.text.config.text_config.max_position_embeddings)

    def count_tokens(self, captions: Sequence[str]) -> Tensor:
        """Count the tokens of N captions, (N,), with the tokenizer's special tokens and without an upper limit."""
        ids = self._tokenizer(list(captions), truncation=False, padding=False, verbose=False)["input_ids"]
        return torch.tensor([len(each) for each in ids])

    def encode_text(self, captions: Sequence[str]) -> Tensor:
        inputs = self._tokenizer(
            list(captions), padding=self._padding, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        outputs = self.text.get_text_features(**inputs.to(next(self.parameters()).device))
        return F.normalize(outputs.pooler_output, dim=-1)
