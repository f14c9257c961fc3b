"""Maximum likelihood: the control for the effect of further training alone."""

from __future__ import annotations

from pipeline.composition.joint import Agents, Objective
from pipeline.composition.method import Method
from pipeline.composition.method_card import MethodCard
from pipeline.composition.pretraining import build_teacher_forcing
from pipeline.ranges import Share

CARDS = {
    "mle": MethodCard("MLE", 0, "Rennie et al., CVPR 2017"),
    "pretrained": MethodCard("MLE, pretrained", 0, "Rennie et al., CVPR 2017", ordinary_word=True),
    "wide_mle": MethodCard("MLE, twice as wide", 0, "Rennie et al., CVPR 2017"),
    "transformer_mle": MethodCard("MLE, transformer", 0, "Rennie et al., CVPR 2017"),
    "mle_clipped": MethodCard("MLE, clipped by norm", 0, "Rennie et al., CVPR 2017"),
    "mle_rerank": MethodCard("MLE, re-ranked", 0, "Rennie et al., CVPR 2017; Andreas and Klein, EMNLP 2016"),
    "mle_similarity": MethodCard("MLE, re-ranked by similarity", 0, "Rennie et al., CVPR 2017"),
    "mle_pragmatic": MethodCard("MLE, pragmatic", 0, "Rennie et al., CVPR 2017; Cohn-Gordon et al., NAACL 2018"),
}


def mle(agents: Agents, objective: Objective, lam: Share = 0.0) -> Method:
    """Build further cross-entropy training of the pretrained speaker on human captions."""
    return build_teacher_forcing(agents.roles)
