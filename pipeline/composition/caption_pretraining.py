"""Pretraining of a speaker or a listener of captions, and adaptation of a listener to a frozen speaker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch import nn

from pipeline.composition.method import Method
from pipeline.composition.pretraining import build_listener_adaptation, build_listener_matching, build_teacher_forcing
from pipeline.data.batches import Captions, list_passes
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.speakers import build_speaker
from pipeline.protocols import Score
from pipeline.scores.discriminability import CollapseRecovery, Hinge, InfoNCE, InputDropout

if TYPE_CHECKING:
    from pipeline.composition.pretraining_settings import ListenerSettings, MatchingSettings, SpeakerPretraining


def build_speaker_pretraining(settings: SpeakerPretraining, prepared: PreparedData, store: FeatureStore) -> Method:
    """Build a speaker, and the method that pretrains it. Raises UserError as `build_speaker` does."""
    speaker = build_speaker(settings, prepared.vocabulary, prepared.max_words, store.regions_shape[1])
    return build_teacher_forcing({"speaker": speaker}, settings.scheduled_sampling, settings.image_dropout)


def build_listener_pretraining(
    settings: ListenerSettings, batch: int, captions: Captions, prepared: PreparedData, store: FeatureStore
) -> Method:
    """Build a listener, and the method that pretrains it in batches of `batch` images.

    Raises UserError where `word_dropout` is positive and the vocabulary has no UNK.
    """
    vocabulary_size, unk = len(prepared.vocabulary), prepared.vocabulary.unk
    listener = Listener(
        vocabulary_size,
        store.pooled_size,
        settings.word_dim,
        settings.hidden_dim,
        settings.encoder,
        settings.features,
    )
    train_rows = prepared.rows("train")
    batch = max(1, min(batch, len(train_rows)))  # as in Batches
    steps = sum(len(rows) // batch for rows in list_passes(prepared, train_rows, captions))
    score = _build_pretraining_score(settings, listener, steps)
    if settings.vector_dropout or settings.word_dropout:
        if settings.word_dropout and unk < 0:
            raise UserError(
                f"word_dropout: expected 0 for a vocabulary without UNK, got {settings.word_dropout:g}; set it to 0"
            )
        score = InputDropout(score, settings.vector_dropout, settings.word_dropout, unk)
    return build_listener_matching(listener, score, settings.reduction)


def build_adaptation_to_speaker(settings: MatchingSettings, speaker: nn.Module, listener: nn.Module) -> Method:
    """Build the method that adapts `listener` to the frozen `speaker`."""
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    return build_listener_adaptation(speaker, listener, _build_matching_score(settings, listener), settings.reduction)


def _build_pretraining_score(settings: ListenerSettings, listener: Listener, steps_per_epoch: int) -> Score:
    score = _build_matching_score(settings, listener)
    warmup, recovery = settings.warmup_epochs * steps_per_epoch, settings.collapse_recovery
    if isinstance(score, InfoNCE) or score.negatives == "all" or not (warmup or recovery):
        return score
    if recovery is None:
        return CollapseRecovery(score, warmup, patience=sys.maxsize, steps=0)
    return CollapseRecovery(score, warmup, recovery.patience, recovery.steps)


def _build_matching_score(settings: MatchingSettings, listener: Listener) -> InfoNCE | Hinge:
    if settings.objective == "infonce":
        return InfoNCE(listener, settings.temperature)
    return Hinge(listener, settings.margin, settings.negatives)
