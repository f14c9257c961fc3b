"""Pretraining of a speaker or a listener, and adaptation of a listener to a frozen speaker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.composition.method import Method
from pipeline.composition.pretraining import listener_adaptation, listener_matching, teacher_forcing
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
from pipeline.workflow.build_data import cider
from pipeline.workflow.slice_training import TRAINING
from pipeline.workflow.slices import find_owner, load_any_agent

if TYPE_CHECKING:
    import torch

    from pipeline.config.views import ParameterNode


def build_pretraining(
    section: ParameterNode, prepared: Prepared, store: FeatureStore, device: torch.device
) -> tuple[Method, CiderD | None]:
    """Return the method that pretrains a speaker or a listener with the settings of its section.

    Also return CIDEr-D for captions of the validation split; None for listeners and for agents of a slice.
    """
    words = len(prepared.vocabulary)
    for each in TRAINING:
        if each.trains(section):
            return each.build_pretraining(section, prepared, store), None
    if "architecture" in section:
        schedule = section.scheduled_sampling
        speaker = _speaker(section, prepared, store)
        scheduled = None if schedule is None else ScheduledSampling(**schedule.plain())
        method = teacher_forcing({"speaker": speaker}, scheduled, section.image_dropout)
        return method, cider(prepared).to(device)
    listener = Listener(
        words, store.pooled_size, section.word_dim, section.hidden_dim, section.encoder, section.features
    )
    shown = showings(prepared, prepared.rows("train"), section.optimisation.captions)
    steps = max(1, sum(len(rows) // section.optimisation.batch for rows in shown))
    score = _matching_score(section, listener, steps)
    if section.vector_dropout or section.word_dropout:
        unk = prepared.vocabulary.unk
        if section.word_dropout and unk < 0:
            raise UserError("word_dropout makes words UNK, which this vocabulary does not have: set it to 0")
        score = InputDropout(score, section.vector_dropout, section.word_dropout, unk)
    return listener_matching(listener, score, section.reduction), None


def _speaker(section: ParameterNode, prepared: Prepared, store: FeatureStore) -> Decoder:
    vocabulary, size = prepared.vocabulary, store.regions_shape[1]
    if section.architecture != "hub":
        architecture = ARCHITECTURES[section.architecture]
        own = architecture.arguments(section) | {"dropout": section.dropout, "max_words": prepared.max_words}
        return architecture.load()(len(vocabulary), size, **own)
    if not isinstance(vocabulary, TokenizerVocabulary):
        raise UserError("architecture hub speaks its tokenizer's tokens: set prepare.tokenizer, run the prepare stage")
    lora = section.lora.plain() if section.lora else None
    speaker = HubDecoder.pretrained(section.model, vocabulary.numbers, prepared.max_words, section.dropout, lora)
    if speaker.region_size != size:
        raise UserError(
            f"{section.model} sees regions of {speaker.region_size} numbers, and the features have {size}: set "
            f"features.main.network to hub/{section.model} and run the features stage again"
        )
    return speaker


def _matching_score(section: ParameterNode, listener: Listener, steps_an_epoch: int) -> Score:
    score = _plain_score(section, listener)
    if isinstance(score, InfoNCE) or score.negatives == "all" or section.collapse_recovery is None:
        return score
    recovery = section.collapse_recovery
    return CollapseRecovery(score, section.warmup_epochs * steps_an_epoch, recovery.patience, recovery.steps)


def _plain_score(section: ParameterNode, listener: Listener) -> InfoNCE | Hinge:
    if section.objective == "infonce":
        return InfoNCE(listener, section.temperature)
    return Hinge(listener, section.margin, section.negatives)


def build_adaptation(
    section: ParameterNode, model: Path, root: Path, prepared: Prepared, device: torch.device
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
    method = listener_adaptation(speaker, listener, _plain_score(section, listener), section.reduction)
    return method, cider(prepared).to(device)
