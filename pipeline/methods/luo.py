"""Luo et al. 2018: score-function training of the speaker against a frozen listener."""

from __future__ import annotations

from pipeline.composition.joint import Agents, Objective, build_tradeoff, score_function
from pipeline.composition.method import SPEAKER_ONLY, Method
from pipeline.composition.method_card import MethodCard
from pipeline.ranges import Share

CARDS = {
    "luo": MethodCard("Luo et al.", 3, "Luo et al., CVPR 2018"),
    "luo_anchored": MethodCard("Luo et al., anchored", 3, "Luo et al., CVPR 2018"),
    "luo_clipped": MethodCard("Luo et al., clipped by norm", 3, "Luo et al., CVPR 2018"),
    "luo_normalised": MethodCard("Luo et al., normalised", 3, "Luo et al., CVPR 2018"),
    "luo_scaled": MethodCard("Luo et al., scaled", 3, "Luo et al., CVPR 2018"),
    "luo_rerank": MethodCard("Luo et al., re-ranked", 3, "Luo et al., CVPR 2018; Andreas and Klein, EMNLP 2016"),
    "luo_similarity": MethodCard("Luo et al., re-ranked by similarity", 3, "Luo et al., CVPR 2018"),
    "luo_rloo": MethodCard("RLOO", 4, "Luo et al., CVPR 2018; Kool et al., 2019"),
    "luo_grpo": MethodCard("GRPO", 4, "Luo et al., CVPR 2018; Shao et al., 2024"),
    "luo_relax": MethodCard("RELAX", 4, "Luo et al., CVPR 2018; Grathwohl et al., ICLR 2018"),
    "cider": MethodCard("CIDEr alone", 8, "Rennie et al., CVPR 2017", ordinary_word=True),
    "transformer_luo": MethodCard("Luo et al., transformer", 3, "Luo et al., CVPR 2018"),
    "transformer_rloo": MethodCard("RLOO, transformer", 4, "Luo et al., CVPR 2018; Kool et al., 2019"),
}


def luo(agents: Agents, objective: Objective, lam: Share) -> Method:
    """Build REINFORCE on the hinge and on CIDEr-D with the same samples, each minus its baseline (default: greedy)."""
    return build_tradeoff(agents, objective, lam, score_function(objective), SPEAKER_ONLY)
