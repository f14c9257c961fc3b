"""PSST (partially-sampled straight-through, §4–6), and the joint-training methods that its paper compares."""

from __future__ import annotations

from pipeline.channels.partial import Feed, MixUnit, PartialSampling
from pipeline.channels.straight_through import Gumbel, StraightThrough
from pipeline.composition.joint import Agents, BaselineName, Objective, build_tradeoff, pathwise, score_function
from pipeline.composition.method import ALTERNATE, Method
from pipeline.composition.method_card import MethodCard
from pipeline.estimators.surrogate import Detached
from pipeline.ranges import Positive, Share

CARDS = {
    "psst_multinomial": MethodCard("PSST-Multinomial", 1, "Vered et al., ICCV 2019"),
    "psst_multinomial_anchored": MethodCard("PSST-Multinomial, anchored", 1, "Vered et al., ICCV 2019"),
    "psst_rho25": MethodCard("PSST-Multinomial, ρ = 0.25", 1, "Vered et al., ICCV 2019"),
    "psst_rho50": MethodCard("PSST-Multinomial, ρ = 0.5", 1, "Vered et al., ICCV 2019"),
    "psst_rho100": MethodCard("PSST-Multinomial, ρ = 1", 1, "Vered et al., ICCV 2019"),
    "psst_clipped": MethodCard("PSST-Multinomial, clipped by norm", 1, "Vered et al., ICCV 2019"),
    "psst_caption": MethodCard("PSST-Multinomial, whole captions", 1, "Vered et al., ICCV 2019"),
    "psst_normalised": MethodCard("PSST-Multinomial, normalised", 1, "Vered et al., ICCV 2019"),
    "psst": MethodCard("PSST", 1, "Vered et al., ICCV 2019", ordinary_word=True),
    "psst_rerank": MethodCard(
        "PSST-Multinomial, re-ranked", 1, "Vered et al., ICCV 2019; Andreas and Klein, EMNLP 2016"
    ),
    "psst_similarity": MethodCard("PSST-Multinomial, re-ranked by similarity", 1, "Vered et al., ICCV 2019"),
    "psst_pretrained": MethodCard(
        "PSST-Multinomial, re-ranked by the pretrained listener", 1, "Vered et al., ICCV 2019"
    ),
    "st_pretrained": MethodCard(
        "ST-Multinomial, re-ranked by the pretrained listener", 2, "Jang et al., ICLR 2017; Vered et al., ICCV 2019"
    ),
    "st_similarity": MethodCard(
        "ST-Multinomial, re-ranked by similarity", 2, "Jang et al., ICLR 2017; Vered et al., ICCV 2019"
    ),
    "psst_pragmatic": MethodCard(
        "PSST-Multinomial, pragmatic", 1, "Vered et al., ICCV 2019; Cohn-Gordon et al., NAACL 2018"
    ),
    "psst_rloo": MethodCard("PSST-Multinomial with RLOO", 8, "Vered et al., ICCV 2019; Kool et al., 2019"),
    "transformer_psst": MethodCard("PSST, transformer", 1, "Vered et al., ICCV 2019"),
    "psst_gumbel": MethodCard("PSST-Gumbel", 5, "Vered et al., ICCV 2019"),
    "st_multinomial": MethodCard("ST-Multinomial", 2, "Jang et al., ICLR 2017; Vered et al., ICCV 2019"),
    "st_multinomial_anchored": MethodCard(
        "ST-Multinomial, anchored", 2, "Jang et al., ICLR 2017; Vered et al., ICCV 2019"
    ),
    "st_clipped": MethodCard("ST-Multinomial, clipped by norm", 2, "Jang et al., ICLR 2017; Vered et al., ICCV 2019"),
    "st_normalised": MethodCard("ST-Multinomial, normalised", 2, "Jang et al., ICLR 2017; Vered et al., ICCV 2019"),
    "st_gumbel": MethodCard("ST-Gumbel", 6, "Jang et al., ICLR 2017; Vered et al., ICCV 2019"),
    "reinforce": MethodCard("REINFORCE", 4, "Williams, 1992; Vered et al., ICCV 2019"),
    "reinforce_greedy": MethodCard("REINFORCE, greedy baseline", 4, "Williams, 1992; Vered et al., ICCV 2019"),
    "reinforce_no_baseline": MethodCard("REINFORCE, no baseline", 4, "Williams, 1992; Vered et al., ICCV 2019"),
    "reinforce_five": MethodCard(
        "REINFORCE, five samples", 4, "Williams, 1992; Vered et al., ICCV 2019; Kool et al., 2019"
    ),
}


def psst_multinomial(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.75,
    mix: MixUnit = "token",
    feed: Feed = "distribution",
) -> Method:
    """Build PSST: a share ρ of captions or tokens (`mix`) passes as full distributions.

    The others pass as straight-through samples.
    """
    channel = PartialSampling(StraightThrough(eos_gradient=objective.eos_gradient), rho, mix, feed)
    return pathwise(agents, objective, lam, channel)


def psst_gumbel(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.75,
    temperature: Positive = 1.0,
    mix: MixUnit = "token",
    feed: Feed = "distribution",
) -> Method:
    """Build PSST over relaxed samples: a share ρ of captions or tokens (`mix`) passes unchanged.

    The others pass as straight-through tokens, the argmax of the relaxed samples.
    """
    channel = PartialSampling(Gumbel(eos_gradient=objective.eos_gradient, temperature=temperature), rho, mix, feed)
    return pathwise(agents, objective, lam, channel)


def st_multinomial(agents: Agents, objective: Objective, lam: Share) -> Method:
    """Build joint training on straight-through samples only; the hinge term equals PSST's with ρ = 0."""
    return pathwise(agents, objective, lam, StraightThrough(eos_gradient=objective.eos_gradient))


def st_gumbel(agents: Agents, objective: Objective, lam: Share, temperature: Positive = 1.0) -> Method:
    """Build joint training on straight-through Gumbel-softmax samples only (Jang et al. 2017)."""
    return pathwise(agents, objective, lam, Gumbel(eos_gradient=objective.eos_gradient, temperature=temperature))


def reinforce(
    agents: Agents,
    objective: Objective,
    lam: Share,
    baseline: BaselineName = "ground_truth",
) -> Method:
    """Build alternating training of speaker and listener; the speaker's hinge uses REINFORCE with `baseline`.

    CIDEr-D keeps the objective's baseline.
    """
    estimator = score_function(objective, baseline)
    listener_estimator = Detached(estimator.channel, objective.listener_reduction)
    return build_tradeoff(agents, objective, lam, estimator, ALTERNATE, listener_estimator)
