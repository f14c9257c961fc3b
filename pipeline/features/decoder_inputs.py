"""Features of captioners that take a prompt with the image: the inputs of the text decoder, from frozen layers.

The text decoder itself is a speaker (pipeline/models/hub_captioner.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import UserError, summarise_error
from pipeline.features.extractor import GridNetwork, NetworkSettings
from pipeline.features.hub_tower import PREFIX, compute_weights_digest
from pipeline.features.network_weights import HUB
from pipeline.runtime.hub_loading import load_captioner
from pipeline.runtime.hub_prompts import PromptedProcessor


class _DecoderInputsSignal(Exception):  # noqa: N818
    """Exception with the inputs of a text decoder, raised in place of its forward pass."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        super().__init__()
        self.inputs = inputs


class DecoderInputsNetwork(GridNetwork):
    """A captioner's layers before its text decoder as an `Extractor`.

    The processor is the model's own, and the prompt is fixed. Regions are the encoder's states that the decoder attends
    to (Florence-2, BLIP-2 with T5). In other models they are the embeddings of image and prompt before the caption,
    except the last token, which begins the caption. The vector is the mean of the regions.
    """

    memory_format = torch.preserve_format

    def __init__(self, settings: NetworkSettings, device: torch.device | str = "cpu"):
        """Build the layers of the model hub/NAME, from the hub or from a folder.

        Raises UserError for settings that this network does not take, for a processor that does not fit the model, and
        as `load_captioner` does.
        """
        name = settings.network.removeprefix(PREFIX)
        unsupported = settings.options, settings.normalisation, settings.grid_size
        if settings.weights != HUB or any(unsupported):
            raise UserError(
                f"features.network: {settings.network} takes weights: hub, options: {{}}, and mean, std and "
                "grid_size: null; set these values"
            )
        captioner = load_captioner(name)
        self._processor = PromptedProcessor(name, captioner.config)
        if settings.image_size not in (0, self._processor.size):
            raise UserError(
                f"features.image_size: {name} takes {self._processor.size} pixels, got {settings.image_size}; set null"
            )
        decoder = captioner.get_decoder().get_decoder()  # a language model may have an encoder before its decoder
        digest = compute_weights_digest(captioner, pooler=captioner.has_pooler)
        decoder.register_forward_pre_hook(_raise_inputs, with_kwargs=True)
        description = settings.describe({"source": name, "sha256": digest}, {"size": self._processor.size})
        super().__init__(
            captioner, self._processor.prepare, replace(settings, image_size=self._processor.size), description, device
        )

    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        try:
            self.model(**self._processor.model_inputs(pixels), use_cache=False)
        except _DecoderInputsSignal as signal:
            encoded: Tensor | None = signal.inputs.get("encoder_hidden_states")
            regions: Tensor = signal.inputs["inputs_embeds"][:, :-1] if encoded is None else encoded
        except torch.OutOfMemoryError:
            raise  # a RuntimeError that does not mean an unsuitable processor
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"features.network: the processor does not fit the model ({summarise_error(error)}); take the model "
                "from its publisher"
            ) from None
        return regions.mean(1), regions.transpose(1, 2).unsqueeze(-1)


def _raise_inputs(module: nn.Module, arguments: tuple[Any, ...], inputs: dict[str, Any]) -> None:
    raise _DecoderInputsSignal(inputs)
