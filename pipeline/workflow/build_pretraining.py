"""Pretraining of a speaker or a listener, and adaptation of a listener to a frozen speaker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.composition.method import Method
from pipeline.composition.pretraining import listener_adaptation, listener_matching, teacher_forcing
from pipeline.composition.reference_cider import reference_cider
from pipeline.config.schema import ListenerSettings, MatchingSettings, SpeakerSettings
from pipeline.data.batches import showings
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary
from pipeline.errors import UserError
from pipeline.metrics.cider import CiderD
from pipeline.models.architectures import ARCHITECTURES
from pipeline.models.decoder import Decoder
from pipeline.models.hub_captioner import HubDecoder
from pipeline.models.listener import Listener
from pipeline.protocols import Score
from pipeline.scores.discriminability import CollapseRecovery, Hinge, InfoNCE, InputDropout
from pipeline.workflow.slices import find_owner, load_any_agent
from pipeline.workflow.training import TRAINING

if TYPE_CHECKING:
    import torch

    from pipeline.config.schema import PretrainSettings


def build_pretraining(
    settings: PretrainSettings, prepared: Prepared, store: FeatureStore, device: torch.device
) -> tuple[Method, CiderD | None]:
    """Return the method that pretrains a speaker or a listener with these settings.

    Also return CIDEr-D for captions of the validation split; None for listeners and for agents of a slice.
    """
    words = len(prepared.vocabulary)
    for each in TRAINING:
        if each.trains(settings):
            return each.build_pretraining(settings, prepared, store), None
    if isinstance(settings, SpeakerSettings):
        speaker = _speaker(settings, prepared, store)
        method = teacher_forcing({"speaker": speaker}, settings.scheduled_sampling, settings.image_dropout)
        return method, reference_cider(prepared).to(device)
    assert isinstance(settings, ListenerSettings)
    listener = Listener(
        words, store.pooled_size, settings.word_dim, settings.hidden_dim, settings.encoder, settings.features
    )
    shown = showings(prepared, prepared.rows("train"), settings.optimisation.captions)
    steps = max(1, sum(len(rows) // settings.optimisation.batch for rows in shown))
    score = _matching_score(settings, listener, steps)
    if settings.vector_dropout or settings.word_dropout:
        unk = prepared.vocabulary.unk
        if settings.word_dropout and unk < 0:
            raise UserError("word_dropout makes words UNK, which this vocabulary does not have: set it to 0")
        score = InputDropout(score, settings.vector_dropout, settings.word_dropout, unk)
    return listener_matching(listener, score, settings.reduction), None


def _speaker(settings: SpeakerSettings, prepared: Prepared, store: FeatureStore) -> Decoder:
    vocabulary, size = prepared.vocabulary, store.regions_shape[1]
    if settings.architecture != "hub":
        architecture = ARCHITECTURES[settings.architecture]
        own = architecture.arguments(dict(settings)) | {"dropout": settings.dropout, "max_words": prepared.max_words}
        return architecture.load()(len(vocabulary), size, **own)
    if not isinstance(vocabulary, TokenizerVocabulary):
        raise UserError("architecture hub speaks its tokenizer's tokens: set prepare.tokenizer, run the prepare stage")
    lora = settings.lora.model_dump(mode="json") if settings.lora else None
    speaker = HubDecoder.pretrained(str(settings.model), vocabulary.numbers, prepared.max_words, settings.dropout, lora)
    if speaker.region_size != size:
        raise UserError(
            f"{settings.model} sees regions of {speaker.region_size} numbers, and the features have {size}: set "
            f"features.main.network to hub/{settings.model} and run the features stage again"
        )
    return speaker


def _matching_score(settings: ListenerSettings, listener: Listener, steps_an_epoch: int) -> Score:
    score = _plain_score(settings, listener)
    if isinstance(score, InfoNCE) or score.negatives == "all" or settings.collapse_recovery is None:
        return score
    recovery = settings.collapse_recovery
    return CollapseRecovery(score, settings.warmup_epochs * steps_an_epoch, recovery.patience, recovery.steps)


def _plain_score(settings: MatchingSettings, listener: Listener) -> InfoNCE | Hinge:
    if settings.objective == "infonce":
        return InfoNCE(listener, settings.temperature)
    return Hinge(listener, settings.margin, settings.negatives)


def build_adaptation(
    settings: MatchingSettings, model: Path, root: Path, prepared: Prepared, device: torch.device
) -> tuple[Method, CiderD | None]:
    """Return the method that adapts the pretrained listener below `root` to the frozen speaker in the folder `model`.

    The metric of a slice's agents is None.
    """
    speaker = load_any_agent(model / "weights.safetensors", "speaker")
    listener = load_any_agent(root / "pretrained" / "listener" / "weights.safetensors", "listener")
    if found := find_owner(TRAINING, (speaker, listener)):
        return found.build_adaptation(speaker, listener), None
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    method = listener_adaptation(speaker, listener, _plain_score(settings, listener), settings.reduction)
    return method, reference_cider(prepared).to(device)
