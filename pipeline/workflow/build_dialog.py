"""Visual dialog: who answers and who judges answers, from their sections in params.yaml, and what they learn from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import nn

from pipeline.composition.method import Method
from pipeline.composition.pretraining import matching, teacher_forcing
from pipeline.data.dialog_batches import DialogBatches, all_rounds
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.data.prepared_dialogs import PreparedDialogs
from pipeline.evaluation.ranking import RankingValidation
from pipeline.models.answering import Answering
from pipeline.models.dialog_encoders import ENCODERS, Encoder
from pipeline.models.discriminator import Discriminator
from pipeline.models.lstm import Lstm
from pipeline.models.transformer import Transformer
from pipeline.scores.answers import Chosen
from pipeline.types import Batch

if TYPE_CHECKING:
    import torch

    from pipeline.config.views import Node

AT_ONCE = 16  # dialogs that are evaluated together


def is_dialog(agents: Iterable[nn.Module]) -> bool:
    """Whether they talk about images, rather than describe them."""
    return any(isinstance(agent, Answering | Discriminator) for agent in agents)


def dialog_pretraining(section: Node, prepared: Prepared, store: FeatureStore) -> Method:
    """The method that pretrains a generator by likelihood, or a discriminator on candidates."""
    if "decoder" in section:
        return teacher_forcing({"speaker": _generator(section, prepared, store)})
    words = len(prepared.vocabulary)
    own = {name: section[name] for name in ("answer", "dropout", "hears_end")}
    discriminator = Discriminator(_encoder(section, store), words, **own)
    return matching(discriminator, Chosen(discriminator, section.options, section.others, norms=section.norms))


def _encoder(section: Node, store: FeatureStore) -> Encoder:
    given = {name: section[name] for name in ("words", "hidden", "dropout", "history", "image")}
    places, size = store.regions_shape
    order = {"order": section.order} if section.order is not None else {}
    encoder = ENCODERS[section.encoder]
    return encoder(region_size=size, places=places if section.places else 0, **given, **order)


def _generator(section: Node, prepared: Prepared, store: FeatureStore) -> Answering:
    longest = PreparedDialogs.load(prepared.folder).answers.shape[1]
    encoder, words = _encoder(section, store), len(prepared.vocabulary)
    told = {"vocabulary": words, "region_size": section.hidden, "dropout": section.dropout, "max_words": longest}
    if section.decoder == "lstm":
        return Answering(encoder, Lstm(words=section.words, **told))
    sizes = {name: section[name] for name in ("hidden", "layers", "heads")}
    return Answering(encoder, Transformer(encoder_layers=0, **sizes, **told))


def dialog_batches(
    prepared: Prepared, store: FeatureStore, rows: Any, batch: int, seed: int, **how: Any
) -> DialogBatches:
    """Training batches of the dialogs about the images `rows`."""
    return DialogBatches(prepared, PreparedDialogs.load(prepared.folder), store, rows, batch, seed, **how)


def ranking_validation(
    method: Method, prepared: Prepared, store: FeatureStore, device: torch.device
) -> RankingValidation:
    """How those who learn rank the candidates of the validation split."""
    dialogs, rows = PreparedDialogs.load(prepared.folder), prepared.rows("val")

    def looked_at() -> Iterable[Batch]:
        return all_rounds(prepared, dialogs, store, rows, AT_ONCE)

    return RankingValidation(method.speaker, method.agents.get("listener"), looked_at, device)
