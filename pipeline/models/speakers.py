"""Settings of a speaker's network, and its construction. The networks are imported when they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import create_model

from pipeline.errors import UserError
from pipeline.models.architectures import ARCHITECTURES, SIZES
from pipeline.ranges import Dropped, Each, Positive, Size
from pipeline.section import Section, Text

if TYPE_CHECKING:
    from pipeline.models.decoder import Decoder
    from pipeline.vocabulary import Vocabulary

    ArchitectureName: TypeAlias = str
    SpeakerSizes: TypeAlias = Section
else:  # as the registry of architectures has them
    ArchitectureName = Literal[(*ARCHITECTURES, "hub")]
    SpeakerSizes = create_model(
        "SpeakerSizes", __base__=Section, **{key: (size.values | None, None) for key, size in SIZES.items()}
    )


class LoraSettings(Section):
    """Low-rank updates, trained instead of a model's weights. `targets` null: all of its linear layers."""

    rank: Size
    alpha: Positive
    targets: Annotated[tuple[Text, ...], *Each] | None = None


class SpeakerSettings(SpeakerSizes):
    """A speaker's network.

    Architecture hub is the captioner `model` of transformers. All its weights are trained, or with `lora` low-rank
    updates only.
    """

    architecture: ArchitectureName
    model: Text | None = None
    lora: LoraSettings | None = None
    dropout: Dropped

    def _check(self) -> None:
        hub = self.architecture == "hub"
        takes = ("model",) if hub else ARCHITECTURES[self.architecture].sizes
        if any((getattr(self, name) is None) == (name in takes) for name in (*SIZES, "model")):
            what = "takes" if hub else "takes the sizes"
            raise ValueError(f"architecture {self.architecture} {what} {', '.join(takes)}, and no other")
        if self.lora is not None and not hub:
            raise ValueError(f"lora goes with architecture hub, not with {self.architecture}")
        heads, hidden = (getattr(self, name) for name in ("heads", "hidden_dim"))
        if heads and hidden and hidden % heads:
            raise ValueError(f"hidden_dim {hidden} is not a multiple of heads {heads}")


def build_speaker(settings: SpeakerSettings, vocabulary: Vocabulary, max_words: int, region_size: int) -> Decoder:
    """Build a speaker of captions of at most `max_words` words, for regions of `region_size` numbers.

    Raises UserError for a captioner whose tokens the vocabulary does not have, or that takes other regions.
    """
    if settings.model is None:
        architecture = ARCHITECTURES[settings.architecture]
        own = architecture.arguments(dict(settings)) | {"dropout": settings.dropout, "max_words": max_words}
        return architecture.load()(len(vocabulary), region_size, **own)
    from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary
    from pipeline.models.hub_captioner import HubDecoder

    if not isinstance(vocabulary, TokenizerVocabulary):
        raise UserError("architecture hub speaks its tokenizer's tokens: set prepare.tokenizer, run the prepare stage")
    lora = settings.lora.model_dump(mode="json") if settings.lora else None
    speaker = HubDecoder.pretrained(settings.model, vocabulary.numbers, max_words, settings.dropout, lora)
    if speaker.region_size != region_size:
        raise UserError(
            f"{settings.model} sees regions of {speaker.region_size} numbers, and the features have {region_size}: set "
            f"features.main.network to hub/{settings.model} and run the features stage again"
        )
    return speaker
