"""Prompts of captioners that are asked for a caption, as their own processors write them."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError
from pipeline.runtime.hub_loading import load_pretrained, naming_faults

CHAT_PROMPT = "Describe this photo in one short sentence."
FLORENCE_TASK = "<CAPTION>"
PROMPTED = ("blip-2", "florence2", "idefics3")  # kinds whose decoders get the prompt with the image


class PromptedProcessor:
    """A captioner's processor with its prompt: each image becomes one square of equal size, beside equal tokens."""

    def __init__(self, name: str, config: Any) -> None:
        """Load the processor of the captioner `name`; raises UserError where it cannot be used."""
        self._name, self._config = name, config
        self._kind: str = config.model_type
        self._processor = load_pretrained("AutoProcessor", name)
        self.nested = self._kind == "idefics3"  # whether images have an axis of tiles
        pixels, self.tokens = self._inputs(Image.new("RGB", (64, 48)))
        self.size = pixels.shape[-1]

    def prepare(self, image: Image.Image) -> Tensor:
        """Return the pixels (3, S, S) of an image; called in threads."""
        return self._inputs(image)[0]

    def _inputs(self, image: Image.Image) -> tuple[Tensor, Tensor]:
        """Return the pixels (3, S, S) of an image and the tokens (T,) of the prompt."""
        with naming_faults(f"{self._name}: its processor does not prepare an image"):
            if self._kind == "blip-2":
                pixels = self._processor.image_processor(image, return_tensors="pt")["pixel_values"]
                shown = [self._config.image_token_index] * self._config.num_query_tokens
                tokens = torch.tensor([[*shown, self._config.text_config.bos_token_id]])
            elif self._kind == "florence2":
                inputs = self._processor(images=image, text=FLORENCE_TASK, return_tensors="pt")
                pixels, tokens = inputs["pixel_values"], inputs["input_ids"]
            else:
                asked = [{"type": "image", "image": image}, {"type": "text", "text": CHAT_PROMPT}]
                inputs = self._processor.apply_chat_template(
                    [[{"role": "user", "content": asked}]],
                    add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
                    processor_kwargs={"do_image_splitting": False},
                )  # fmt: skip
                pixels, tokens = inputs["pixel_values"][0], inputs["input_ids"]
        if pixels.dim() != 4 or len(pixels) != 1 or pixels.shape[-1] != pixels.shape[-2]:
            raise UserError(f"{self._name}: its processor makes no square of an image, and training needs one")
        return pixels[0], tokens[0]
