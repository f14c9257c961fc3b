"""Prompts of captioners that take text with the image, as their own processors format them."""

from __future__ import annotations

import math
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError
from pipeline.runtime.hub_loading import explain_load_errors, load_pretrained

CHAT_PROMPT = "Describe this photo in one short sentence."
FLORENCE_TASK = "<CAPTION>"
TILED = ("idefics3", "smolvlm")  # kinds whose images have an axis of tiles
PATCHED = ("qwen2_5_vl", "qwen2_vl")  # kinds whose images are rows of patches, with positions in time and space
PROMPTED = ("blip-2", "florence2", *TILED, *PATCHED)  # kinds whose decoders get the prompt with the image
SQUARE = 448  # pixels a side; images are resized for processors that keep the aspect ratio


class PromptedProcessor:
    """Processor of a captioner with a fixed prompt: all images become S × S pixels, with equal tokens (T,)."""

    def __init__(self, name: str, config: Any) -> None:
        """Load the processor of the captioner `name`; raises UserError where it cannot be used."""
        self._name, self._config = name, config
        self._kind: str = config.model_type
        self._processor = load_pretrained("AutoProcessor", name)
        pixels, self.tokens = self._process_image(Image.new("RGB", (64, 48)))
        self.size = pixels.shape[-1]

    def prepare(self, image: Image.Image) -> Tensor:
        """Return the pixels (3, S, S) of an image, thread-safely. Raises UserError where the processor fails."""
        return self._process_image(image)[0]

    def model_inputs(self, pixels: Tensor) -> dict[str, Tensor]:
        """Return the model's inputs for prepared images (B, 3, S, S), each with the prompt."""
        tokens = self.tokens.to(pixels.device).expand(len(pixels), -1)
        inputs = {"pixel_values": pixels, "input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if self._kind in TILED:
            inputs["pixel_values"] = pixels.unsqueeze(1)
        if self._kind in PATCHED:
            side = self.size // self._config.vision_config.patch_size
            inputs["pixel_values"] = self._split_patches(pixels)
            inputs["image_grid_thw"] = tokens.new_tensor([[1, side, side]]).expand(len(pixels), -1)
            inputs["mm_token_type_ids"] = (tokens == self._config.image_token_id).int()
        return inputs

    def _process_image(self, image: Image.Image) -> tuple[Tensor, Tensor]:
        """Return the pixels (3, S, S) of an image and the tokens (T,) of the prompt.

        Raises UserError as `prepare` does.
        """
        with explain_load_errors(f"{self._name}: its processor does not prepare an image"):
            if self._kind == "blip-2":
                pixels = self._processor.image_processor(image, return_tensors="pt")["pixel_values"]
                image_tokens = [self._config.image_token_index] * self._config.num_query_tokens
                tokens = torch.tensor([[*image_tokens, self._config.text_config.bos_token_id]])
            elif self._kind == "florence2":
                inputs = self._processor(images=image, text=FLORENCE_TASK, return_tensors="pt")
                pixels, tokens = inputs["pixel_values"], inputs["input_ids"]
            else:
                if self._kind in PATCHED:
                    image = image.resize((SQUARE, SQUARE), Image.Resampling.BICUBIC)
                content = [{"type": "image", "image": image}, {"type": "text", "text": CHAT_PROMPT}]
                inputs = self._processor.apply_chat_template(
                    [[{"role": "user", "content": content}]],
                    add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
                    processor_kwargs={"do_image_splitting": False} if self._kind in TILED else {},
                )  # fmt: skip
                pixels, tokens = inputs["pixel_values"], inputs["input_ids"]
                pixels = self._join_patches(pixels) if self._kind in PATCHED else pixels[0]
        if pixels.dim() != 4 or len(pixels) != 1 or pixels.shape[-1] != pixels.shape[-2]:
            raise UserError(f"{self._name}: its processor does not resize images to squares; give another captioner")
        return pixels[0], tokens[0]

    def _join_patches(self, patches: Tensor) -> Tensor:
        """Return the pixels (1, 3, S, S) of a square from its G² patches (G², 3 · F · P²), whose F frames are equal.

        A patch has P × P pixels, and S is G · P.
        """
        vision = self._config.vision_config
        merge, patch = vision.spatial_merge_size, vision.patch_size
        cells = math.isqrt(len(patches)) // merge
        frames = patches.view(cells, cells, merge, merge, 3, vision.temporal_patch_size, patch, patch)
        return frames[:, :, :, :, :, 0].permute(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, cells * merge * patch, -1)

    def _split_patches(self, pixels: Tensor) -> Tensor:
        """Return the patches (B · G², 3 · F · P²) of squares (B, 3, S, S), the inverse of `_join_patches`."""
        vision = self._config.vision_config
        merge, patch = vision.spatial_merge_size, vision.patch_size
        cells = pixels.shape[-1] // (merge * patch)
        parts = pixels.view(len(pixels), 3, cells, merge, patch, cells, merge, patch).permute(0, 2, 5, 3, 6, 1, 4, 7)
        frames = parts.unsqueeze(6).expand(*parts.shape[:6], vision.temporal_patch_size, -1, -1)
        return frames.reshape(len(pixels) * (cells * merge) ** 2, -1)
