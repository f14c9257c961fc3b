"""Families of pretrained captioners in transformers: the class that loads each, and how a prompt is given to it."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.runtime.hub_loading import import_transformers
from pipeline.runtime.hub_prompts import CHAT_PROMPT, FLORENCE_TASK


@dataclass(frozen=True)
class CaptionerFamily:
    """A family's class in transformers, its default prompt, and the form of its inputs."""

    loader: str
    prompt: str | None = None  # the default prompt
    takes_prompt: bool = True
    begins_caption: bool = False  # whether captions begin with the prompt, as BLIP's “a photography of”
    whole_processor: bool = True  # whether AutoProcessor opens the processor; otherwise its parts are opened
    chat: bool = False  # whether the prompt is a message of a user, in the model's chat template


FAMILIES = {
    "blip": CaptionerFamily("BlipForConditionalGeneration", begins_caption=True),
    "blip-2": CaptionerFamily("Blip2ForConditionalGeneration"),
    "git": CaptionerFamily("GitForCausalLM", takes_prompt=False),
    "vision-encoder-decoder": CaptionerFamily("VisionEncoderDecoderModel", takes_prompt=False, whole_processor=False),
    "florence2": CaptionerFamily("Florence2ForConditionalGeneration", FLORENCE_TASK),
}


def find_family(kind: str) -> CaptionerFamily:
    """Return the family of the model type `kind`; raises UserError for a type that cannot caption photos here."""
    if kind in FAMILIES:
        return FAMILIES[kind]
    import_transformers()
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as CHATS

    if kind in CHATS:
        return CaptionerFamily(CHATS[kind], CHAT_PROMPT, chat=True)
    raise UserError(
        f"is of the kind {kind}, which is no captioner that can be used here; give one of the kinds "
        f"{', '.join(FAMILIES)}, or a chat model that takes images (smolvlm, qwen2_5_vl and others)"
    )
