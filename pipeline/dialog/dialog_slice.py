"""Slice of visual dialog: its agents, and the construction of their evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.dialog.evaluation.dialog_evaluation import DialogEvaluation
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.dialog_encoders import ENCODERS
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.dialog.settings import PRIORS, CandidateRankers
from pipeline.errors import UserError
from pipeline.extension import Slice
from pipeline.models.agent_files import KINDS, load_agent

if TYPE_CHECKING:
    import torch

    from pipeline.evaluation.evaluation_settings import EvaluationSettings


class DialogSlice(Slice):
    """Visual dialog: generators answer questions, and discriminators rank candidate answers."""

    agents = (DialogDecoder, DialogLstm, Discriminator, *ENCODERS.values())
    handled_agents = (DialogDecoder, Discriminator)

    def build_evaluation(
        self,
        settings: EvaluationSettings,
        prepared: PreparedData,
        store: FeatureStore,
        judges: Mapping[str, Path],
        pretrained: Path,
        method: str,
        rerank: int | None,
        device: torch.device,
    ) -> DialogEvaluation:
        if rerank is not None:
            raise UserError(
                "rerank: dialogs have no reranking of answers; remove rerank from the method's block or grid"
            )
        discriminators = {name: self._load_discriminator(folder) for name, folder in judges.items()}
        names = settings.candidate_rankers.get(method, ()) if isinstance(settings, CandidateRankers) else ()
        rankers = {name: name if name in PRIORS else self._load_discriminator(pretrained / name) for name in names}
        return DialogEvaluation(prepared, store, discriminators, settings.beam, device, rankers)

    def _load_discriminator(self, folder: Path) -> Discriminator:
        classes = KINDS | {kind.__name__: kind for kind in self.agents}
        discriminator = load_agent(folder / "weights.safetensors", "listener", known=classes)
        assert isinstance(discriminator, Discriminator)
        return discriminator
