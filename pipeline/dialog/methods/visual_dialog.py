"""Visual dialog (Lu et al. 2017): a generator trained with the score of a discriminator of answers.

`alpha` is the weight of the additional likelihood term. The paper uses `reduction: mean` in the objective.
With `encoder: discriminator`, training starts from the discriminator's encoder and word embeddings in place of the
generator's own.
"""

from __future__ import annotations

from pipeline.channels.hard import Multinomial
from pipeline.channels.partial import Feed, MixUnit, PartialSampling
from pipeline.channels.straight_through import Gumbel, ReinMax, StraightThrough
from pipeline.composition.method import ALTERNATE, LISTENER, Method, Term
from pipeline.composition.method_card import MethodCard
from pipeline.composition.objective import Objective
from pipeline.composition.pretraining import build_teacher_forcing
from pipeline.dialog.composition.answer_preference import NPairScore, PairwiseScore
from pipeline.dialog.composition.dialog_agents import (
    DialogAgents,
    InitialEncoder,
    discriminator_guided,
    initialise_encoder,
)
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.surrogate import Detached, Pathwise, ScoreFunction
from pipeline.protocols import Channel
from pipeline.ranges import Count, NonNegative, Positive, Share

CARDS = {
    "g_mle": MethodCard("G-MLE", 0, "Lu et al., NIPS 2017"),
    "g_mle_lf": MethodCard("G-MLE, LF", 0, "Lu et al., NIPS 2017"),
    "g_mle_hre": MethodCard("G-MLE, HRE", 0, "Lu et al., NIPS 2017"),
    "g_mle_blind": MethodCard("G-MLE, no image", 0, "Lu et al., NIPS 2017"),
    "g_mle_question": MethodCard("G-MLE, question only", 0, "Lu et al., NIPS 2017"),
    "g_more": MethodCard("G-MLE, as many steps", 5, "Lu et al., NIPS 2017"),
    "g_dis": MethodCard("G-DIS", 1, "Lu et al., NIPS 2017"),
    "g_dis_end": MethodCard("G-DIS, soft ending", 1, "Lu et al., NIPS 2017"),
    "g_psst": MethodCard("G-DIS with PSST", 1, "Lu et al., NIPS 2017; Vered et al., ICCV 2019"),
    "g_reinmax": MethodCard("G-DIS with ReinMax", 9, "Lu et al., NIPS 2017; Liu, Dong et al., NeurIPS 2023"),
    "g_rloo": MethodCard("G-DIS with RLOO", 4, "Lu et al., NIPS 2017; Kool et al., 2019"),
    "g_more_d": MethodCard("G-MLE from D's encoder", 5, "Lu et al., NIPS 2017"),
    "g_more_d_blind": MethodCard("G-MLE from D's encoder, no image", 0, "Lu et al., NIPS 2017"),
    "g_more_d_question": MethodCard("G-MLE from D's encoder, question only", 0, "Lu et al., NIPS 2017"),
    "g_dis_d": MethodCard("G-DIS from D's encoder", 1, "Lu et al., NIPS 2017"),
    "g_dis_end_d": MethodCard("G-DIS from D's encoder, soft ending", 1, "Lu et al., NIPS 2017"),
    "g_psst_d": MethodCard("G-DIS with PSST, from D's encoder", 1, "Lu et al., NIPS 2017; Vered et al., ICCV 2019"),
    "g_reinmax_d": MethodCard(
        "G-DIS with ReinMax, from D's encoder", 9, "Lu et al., NIPS 2017; Liu, Dong et al., NeurIPS 2023"
    ),
    "g_rloo_d": MethodCard("G-DIS with RLOO, from D's encoder", 4, "Lu et al., NIPS 2017; Kool et al., 2019"),
    "gan1": MethodCard("GAN1", 2, "Lu et al., NIPS 2017"),
    "gan2": MethodCard("GAN2", 3, "Lu et al., NIPS 2017"),
    "gan1_d": MethodCard("GAN1 from D's encoder", 2, "Lu et al., NIPS 2017"),
    "gan2_d": MethodCard("GAN2 from D's encoder", 3, "Lu et al., NIPS 2017"),
}


def g_more(agents: DialogAgents, objective: Objective, encoder: InitialEncoder = "own") -> Method:
    """Build further training by likelihood, the control for the effect of more steps."""
    initialise_encoder(agents, encoder)
    return build_teacher_forcing(agents.roles)


def g_dis(
    agents: DialogAgents,
    objective: Objective,
    alpha: NonNegative = 0.5,
    temperature: Positive = 0.5,
    norm_penalty: NonNegative = 0.0,
    encoder: InitialEncoder = "own",
) -> Method:
    """Build G-DIS: straight-through Gumbel tokens, scored by the frozen pretrained discriminator (Eq. 5)."""
    initialise_encoder(agents, encoder)
    return discriminator_guided(
        agents, alpha, _make_pathwise(objective, _make_gumbel(objective, temperature)), norm_penalty=norm_penalty
    )


def g_psst(
    agents: DialogAgents,
    objective: Objective,
    alpha: NonNegative = 0.5,
    rho: Share = 0.75,
    mix: MixUnit = "token",
    feed: Feed = "distribution",
    encoder: InitialEncoder = "own",
) -> Method:
    """Build the objective of G-DIS with partial sampling: tokens pass as full distributions with probability ρ.

    With `mix` "caption", whole answers pass as full distributions with this probability.
    """
    initialise_encoder(agents, encoder)
    channel = PartialSampling(StraightThrough(eos_gradient=objective.eos_gradient), rho, mix, feed)
    return discriminator_guided(agents, alpha, _make_pathwise(objective, channel))


def g_reinmax(
    agents: DialogAgents,
    objective: Objective,
    alpha: NonNegative = 0.5,
    temperature: Positive = 1.0,
    encoder: InitialEncoder = "own",
) -> Method:
    """Build the objective of G-DIS with the gradient of ReinMax."""
    initialise_encoder(agents, encoder)
    channel = ReinMax(eos_gradient=objective.eos_gradient, temperature=temperature)
    return discriminator_guided(agents, alpha, _make_pathwise(objective, channel))


def g_rloo(
    agents: DialogAgents,
    objective: Objective,
    alpha: NonNegative = 0.5,
    samples: Count = 4,
    encoder: InitialEncoder = "own",
) -> Method:
    """Build the objective of G-DIS with REINFORCE; the baseline is the mean score of the question's other samples."""
    initialise_encoder(agents, encoder)
    return discriminator_guided(agents, alpha, ScoreFunction(Multinomial(samples), LeaveOneOut()))


def gan1(
    agents: DialogAgents,
    objective: Objective,
    alpha: NonNegative = 0.5,
    temperature: Positive = 0.5,
    encoder: InitialEncoder = "own",
) -> Method:
    """Build alternating training in which the discriminator minimises log(1 + exp(generated − human))."""
    initialise_encoder(agents, encoder)
    channel = _make_gumbel(objective, temperature)
    listener_term = Term("matching", 1.0, PairwiseScore(agents.listener, reverse=True), Detached(channel), LISTENER)
    return discriminator_guided(agents, alpha, _make_pathwise(objective, channel), ALTERNATE, (listener_term,))


def gan2(
    agents: DialogAgents,
    objective: Objective,
    alpha: NonNegative = 0.5,
    temperature: Positive = 0.5,
    encoder: InitialEncoder = "own",
) -> Method:
    """Build alternating training in which the generated answer is a further negative of the discriminator."""
    initialise_encoder(agents, encoder)
    channel = _make_gumbel(objective, temperature)
    listener_term = Term("matching", 1.0, NPairScore(agents.listener, adversary=True), Detached(channel), LISTENER)
    return discriminator_guided(agents, alpha, _make_pathwise(objective, channel), ALTERNATE, (listener_term,))


def _make_gumbel(objective: Objective, temperature: float) -> Gumbel:
    return Gumbel(eos_gradient=objective.eos_gradient, temperature=temperature)


def _make_pathwise(objective: Objective, channel: Channel) -> Pathwise:
    return Pathwise(channel, objective.reduction)
