"""Construction of a speaker's network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary
from pipeline.errors import UserError
from pipeline.models.architectures import ARCHITECTURES
from pipeline.models.decoder import Decoder
from pipeline.models.hub_captioner import HubDecoder
from pipeline.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pipeline.models.model_settings import SpeakerSettings


def build_speaker(settings: SpeakerSettings, vocabulary: Vocabulary, max_words: int, region_size: int) -> Decoder:
    """Build a speaker of captions of at most `max_words` words, for regions of size `region_size`.

    Raises UserError for a captioner if the vocabulary is not from a tokenizer, or the regions have another size, and as
    `HubDecoder.from_hub` does.
    """
    if settings.model is None:
        architecture = ARCHITECTURES[settings.architecture]
        options = architecture.select_arguments(dict(settings)) | {"dropout": settings.dropout, "max_words": max_words}
        return architecture.load()(len(vocabulary), region_size, **options)
    if not isinstance(vocabulary, TokenizerVocabulary):
        raise UserError(
            f"{settings.model}: expected captions of its tokenizer's tokens, got words; set prepare.tokenizer to "
            f"{settings.model} and run the prepare stage again"
        )
    lora = settings.lora.model_dump(mode="json") if settings.lora else None
    speaker = HubDecoder.from_hub(settings.model, vocabulary.numbers, max_words, settings.dropout, lora)
    if speaker.region_size != region_size:
        raise UserError(
            f"{settings.model}: expected regions of size {speaker.region_size}, got features of size {region_size}; "
            f"set features.main.network to hub/{settings.model} and run the features stage again"
        )
    return speaker
