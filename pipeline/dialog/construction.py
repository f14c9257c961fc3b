"""Construction of visual dialog's agents, methods, batches and validation from their settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import nn

from pipeline.composition.method import Method
from pipeline.composition.pretraining import build_listener_adaptation, build_listener_matching, build_teacher_forcing
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.dialog.composition.answer_preference import NPairScore, PairwiseScore
from pipeline.dialog.composition.dialog_agents import DialogAgents
from pipeline.dialog.data.dialog_batches import DialogBatches, iterate_rounds
from pipeline.dialog.data.prepared_dialogs import PreparedDialogs
from pipeline.dialog.evaluation.answer_ranking import RankingValidation
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.dialog_encoders import ENCODERS, DialogEncoder
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.dialog.settings import DialogEncoderSettings, DiscriminatorSettings, GeneratorSettings
from pipeline.extension import SliceTraining
from pipeline.models.transformer import Transformer
from pipeline.types import Batch

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pipeline.section import Section

DIALOGS_PER_BATCH = 16  # in validation


class DialogTraining(SliceTraining):
    """Training of visual dialog: generators answer questions, and discriminators rank candidate answers."""

    handled_agents = (DialogDecoder, Discriminator)

    def trains(self, settings: Section) -> bool:
        return isinstance(settings, GeneratorSettings | DiscriminatorSettings)

    def build_pretraining(self, settings: Section, prepared: PreparedData, store: FeatureStore) -> Method:
        """Build the method that pretrains a generator by likelihood, or a discriminator on candidates."""
        if isinstance(settings, GeneratorSettings):
            return build_teacher_forcing({"speaker": _build_generator(settings, prepared, store)})
        assert isinstance(settings, DiscriminatorSettings)
        discriminator = Discriminator(
            _build_encoder(settings, store),
            len(prepared.vocabulary),
            answer=settings.answer,
            dropout=settings.dropout,
            encode_eos=settings.encode_eos,
        )
        return build_listener_matching(
            discriminator,
            NPairScore(
                discriminator, settings.sampled_options, settings.batch_negatives, norm_penalty=settings.norm_penalty
            ),
        )

    def pair_agents(self, speaker: nn.Module, listener: nn.Module) -> DialogAgents:
        assert isinstance(speaker, DialogDecoder)
        assert isinstance(listener, Discriminator)
        return DialogAgents(speaker, listener)

    def build_adaptation(self, speaker: nn.Module, listener: nn.Module) -> Method:
        """Build the method that trains a discriminator to rank human answers above the speaker's."""
        agents = self.pair_agents(speaker, listener)
        return build_listener_adaptation(agents.speaker, agents.listener, PairwiseScore(agents.listener, reverse=True))

    def build_batches(
        self, prepared: PreparedData, store: FeatureStore, rows: np.ndarray, batch: int, seed: int, **options: Any
    ) -> DialogBatches:
        return DialogBatches(prepared, PreparedDialogs.load(prepared.folder), store, rows, batch, seed, **options)

    def build_validation(
        self, method: Method, prepared: PreparedData, store: FeatureStore, device: torch.device
    ) -> RankingValidation:
        """Build the ranking of the candidates on the validation split."""
        dialogs, rows = PreparedDialogs.load(prepared.folder), prepared.rows("val")

        def iterate_validation() -> Iterable[Batch]:
            return iterate_rounds(prepared, dialogs, store, rows, DIALOGS_PER_BATCH)

        return RankingValidation(method.speaker, method.agents.get("listener"), iterate_validation, device)


def _build_encoder(settings: DialogEncoderSettings, store: FeatureStore) -> DialogEncoder:
    num_regions, size = store.regions_shape
    order_option = {"order": settings.round_positions} if settings.round_positions is not None else {}
    return ENCODERS[settings.encoder](
        words=settings.word_dim,
        region_size=size,
        hidden=settings.hidden_dim,
        dropout=settings.dropout,
        history=settings.history,
        image=settings.image,
        num_positions=num_regions if settings.region_positions else 0,
        layer_norm=settings.layer_norm,
        **order_option,
    )


def _build_generator(settings: GeneratorSettings, prepared: PreparedData, store: FeatureStore) -> DialogDecoder:
    max_words, words = PreparedDialogs.load(prepared.folder).answers.shape[1], len(prepared.vocabulary)
    encoder, size = _build_encoder(settings, store), settings.hidden_dim
    if settings.decoder == "lstm":
        return DialogDecoder(encoder, DialogLstm(words, size, settings.word_dim, settings.dropout, max_words))
    assert settings.layers is not None
    assert settings.heads is not None
    return DialogDecoder(
        encoder, Transformer(words, size, size, 0, settings.layers, settings.heads, settings.dropout, max_words)
    )
