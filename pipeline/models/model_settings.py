"""Settings of speakers' networks, and of judges and retrievers that were trained elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model

from pipeline.models.architectures import ARCHITECTURES, SIZES
from pipeline.ranges import Distinct, DropoutRate, Positive, Size
from pipeline.section import Name, Section, Text

if TYPE_CHECKING:
    ArchitectureName: TypeAlias = str
    SpeakerSizes: TypeAlias = Section
else:  # the registry of architectures defines these types
    ArchitectureName = Literal[(*ARCHITECTURES, "hub")]
    SpeakerSizes = create_model(
        "SpeakerSizes", __base__=Section, **{key: (size.values | None, None) for key, size in SIZES.items()}
    )


class LoraSettings(Section):
    """Settings of low-rank updates (LoRA), trained instead of the weights of a captioner's text decoder.

    `targets` are names of linear layers; null: all linear layers of the text decoder.
    """

    rank: Size
    alpha: Positive
    targets: Annotated[tuple[Text, ...], *Distinct] | None = None


class SpeakerSettings(SpeakerSizes):
    """Settings of a speaker's network.

    Architecture hub is the text decoder of the captioner `model` of transformers. Without `lora`, all weights of
    the decoder are trained. With `lora`, only the low-rank updates and the null image are trained.
    """

    architecture: ArchitectureName
    model: Text | None = None
    lora: LoraSettings | None = None
    dropout: DropoutRate

    def _check(self) -> None:
        hub = self.architecture == "hub"
        sizes = ("model",) if hub else ARCHITECTURES[self.architecture].sizes
        if wrong := [name for name in (*SIZES, "model") if (getattr(self, name) is None) == (name in sizes)]:
            takes = "model, and no sizes" if hub else f"the sizes {', '.join(sizes)}, and no other"
            changes = ", ".join(f"set {name}" if name in sizes else f"remove {name}" for name in wrong)
            raise ValueError(f"architecture {self.architecture} takes {takes}; {changes}")
        if self.lora is not None and not hub:
            raise ValueError(f"lora goes with architecture hub, not with {self.architecture}; remove lora")
        heads, hidden = (getattr(self, name) for name in ("heads", "hidden_dim"))
        if heads and hidden and hidden % heads:
            raise ValueError(f"hidden_dim {hidden} is not a multiple of heads {heads}; change one of them")


class PretrainedJudgeSettings(Section):
    """Settings of a judge or retriever that was trained elsewhere.

    `network` is a network of open_clip, or a CLIP or SigLIP of transformers. `features` names the feature set that the
    same network extracted. `weights` and `options` are as in the section `features`.
    """

    features: Name
    network: Text
    weights: Text
    options: dict[str, Any] = Field(default_factory=dict)

    def _check(self) -> None:
        if not self.network.startswith(("open_clip/", "hub/")):
            raise ValueError(
                f"network = {self.network}: expected open_clip/NETWORK.WEIGHTS, by open_clip's names, or hub/NAME of a "
                "CLIP or SigLIP of transformers"
            )
        if self.network.startswith("hub/") and (self.weights != "hub" or self.options):
            raise ValueError(
                f"network {self.network} takes weights: hub, and no options; set weights: hub and options: {{}}"
            )
