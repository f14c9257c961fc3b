"""Construction of visual dialog's agents, methods, batches and validation from their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from pipeline.composition.method import Method
from pipeline.composition.pretraining import listener_adaptation, listener_matching, teacher_forcing
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.dialog.composition.answer_preference import NPairScore, PairwiseScore
from pipeline.dialog.composition.dialog_agents import DialogAgents
from pipeline.dialog.data.dialog_batches import DialogBatches, all_rounds
from pipeline.dialog.data.prepared_dialogs import PreparedDialogs
from pipeline.dialog.evaluation.answer_ranking import RankingValidation
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.dialog_encoders import ENCODERS, DialogEncoder
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.extension import SliceTraining
from pipeline.models.transformer import Transformer
from pipeline.types import Batch

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pipeline.config.views import ParameterNode

AT_ONCE = 16  # dialogs in one evaluation batch


class DialogTraining(SliceTraining):
    """Training of visual dialog: generators answer questions, and discriminators rank candidate answers."""

    owned = (DialogDecoder, Discriminator)

    def trains(self, section: Mapping[str, Any]) -> bool:
        return "decoder" in section or "answer" in section

    def build_pretraining(self, section: ParameterNode, prepared: Prepared, store: FeatureStore) -> Method:
        """Build the method that pretrains a generator by likelihood, or a discriminator on candidates."""
        if "decoder" in section:
            return teacher_forcing({"speaker": _generator(section, prepared, store)})
        words = len(prepared.vocabulary)
        own = {name: section[name] for name in ("answer", "dropout")}
        discriminator = Discriminator(_encoder(section, store), words, hears_end=section.encode_eos, **own)
        return listener_matching(
            discriminator,
            NPairScore(discriminator, section.sampled_options, section.batch_negatives, norms=section.norm_penalty),
        )

    def pair_agents(self, speaker: nn.Module, listener: nn.Module) -> DialogAgents:
        assert isinstance(speaker, DialogDecoder)
        assert isinstance(listener, Discriminator)
        return DialogAgents(speaker, listener)

    def build_adaptation(self, speaker: nn.Module, listener: nn.Module) -> Method:
        """Build the method that trains a discriminator to rank human answers above the speaker's."""
        pair = self.pair_agents(speaker, listener)
        return listener_adaptation(pair.speaker, pair.listener, PairwiseScore(pair.listener, reverse=True))

    def build_batches(
        self, prepared: Prepared, store: FeatureStore, rows: np.ndarray, batch: int, seed: int, **how: Any
    ) -> DialogBatches:
        return DialogBatches(prepared, PreparedDialogs.load(prepared.folder), store, rows, batch, seed, **how)

    def build_validation(
        self, method: Method, prepared: Prepared, store: FeatureStore, device: torch.device
    ) -> RankingValidation:
        """Build the ranking of the candidates of the validation split."""
        dialogs, rows = PreparedDialogs.load(prepared.folder), prepared.rows("val")

        def looked_at() -> Iterable[Batch]:
            return all_rounds(prepared, dialogs, store, rows, AT_ONCE)

        return RankingValidation(method.speaker, method.agents.get("listener"), looked_at, device)


def _encoder(section: ParameterNode, store: FeatureStore) -> DialogEncoder:
    given = {name: section[name] for name in ("dropout", "history", "image")}
    given |= {"words": section.word_dim, "hidden": section.hidden_dim}
    places, size = store.regions_shape
    order = {"order": section.round_positions} if section.round_positions is not None else {}
    encoder = ENCODERS[section.encoder]
    return encoder(region_size=size, places=places if section.region_positions else 0, **given, **order)


def _generator(section: ParameterNode, prepared: Prepared, store: FeatureStore) -> DialogDecoder:
    longest = PreparedDialogs.load(prepared.folder).answers.shape[1]
    encoder, words = _encoder(section, store), len(prepared.vocabulary)
    told = {"vocabulary": words, "region_size": section.hidden_dim, "dropout": section.dropout, "max_words": longest}
    if section.decoder == "lstm":
        return DialogDecoder(encoder, DialogLstm(words=section.word_dim, **told))
    sizes = {"hidden": section.hidden_dim, "layers": section.layers, "heads": section.heads}
    return DialogDecoder(encoder, Transformer(encoder_layers=0, **sizes, **told))
