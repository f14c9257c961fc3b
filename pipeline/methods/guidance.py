"""Guidance (Kornblith et al. 2023): a captioner, trained with a null image in place of a share of the images."""

from __future__ import annotations

from pipeline.composition.joint import Agents, Objective
from pipeline.composition.method import Method
from pipeline.composition.method_card import MethodCard
from pipeline.composition.pretraining import build_teacher_forcing
from pipeline.ranges import DropoutRate, Share

CARDS = {
    "guidance": MethodCard("Guidance", 7, "Kornblith et al., ICCV 2023", ordinary_word=True),
    "transformer_guidance": MethodCard("Guidance, transformer", 7, "Kornblith et al., ICCV 2023"),
}


def guidance(agents: Agents, objective: Objective, lam: Share = 0.0, image_dropout: DropoutRate = 0.1) -> Method:
    """Build cross-entropy training with a null image, which decoding with guidance needs."""
    return build_teacher_forcing(agents.roles, image_dropout=image_dropout)
