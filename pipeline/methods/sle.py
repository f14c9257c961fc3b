"""Sequence-level learning (SLL) with exploration by token entropy or caption distance (Chen and Jin, CVPR 2020).

No listener is used. The paper's losses are sums over a caption's tokens. Here they are divided by the mean number
of tokens per caption. `scale` is the maximum of CIDEr-D: 10 as usually printed, 1 as in the paper's theory (Eq. 2).
"""

from __future__ import annotations

from pipeline.channels.hard import Multinomial
from pipeline.composition.joint import Agents, Objective, score_function
from pipeline.composition.method import SPEAKER_ONLY, Method, Term
from pipeline.composition.method_card import MethodCard
from pipeline.errors import UserError
from pipeline.estimators.surrogate import Pathwise
from pipeline.ranges import Count, NonNegative, Positive, Share
from pipeline.scores.exploration import SetDistance, TokenEntropy
from pipeline.scores.naturalness import CiderScore
from pipeline.scores.rewards import Reward, mix_metrics

CARDS = {
    "sll": MethodCard("SLL", 11, "Rennie et al., CVPR 2017"),
    "sll_bcmr": MethodCard("SLL, BCMR", 11, "Rennie et al., CVPR 2017; Liu, Zhu et al., ICCV 2017"),
    "sll_me": MethodCard("SLL-ME", 11, "Chen and Jin, CVPR 2020"),
    "sll_sle": MethodCard("SLL-SLE", 11, "Chen and Jin, CVPR 2020"),
}
MAX_CIDER = 10  # CIDEr-D's maximum as usually printed


def sll(agents: Agents, objective: Objective, samples: Count = 1, reward: Reward = "cider") -> Method:
    """Build self-critical training (Rennie et al. 2017) on the reward of `samples` captions per image.

    The objective's baseline is subtracted, by default the greedy caption's reward.
    """
    score = mix_metrics(reward, agents.cider, agents.texts)
    estimator = score_function(objective, channel=Multinomial(samples))
    return _build_method(agents, Term("naturalness", 1.0, score, estimator))


def sll_me(
    agents: Agents, objective: Objective, weight: NonNegative = 0.01, samples: Count = 1, scale: Positive = 10.0
) -> Method:
    """Build SLL on CIDEr-D plus `weight` times the entropy of each token's distribution."""
    channel = Multinomial(samples, entropies=True)
    precision = _build_precision_term(agents, objective, channel, scale / MAX_CIDER)
    return _build_method(agents, precision, Term("entropy", weight, TokenEntropy(), Pathwise(channel, "words")))


def sll_sle(
    agents: Agents, objective: Objective, alpha: Share = 0.75, samples: Count = 5, scale: Positive = 10.0
) -> Method:
    """Build training on α · CIDEr-D + (1 − α) · mean distance among an image's samples (Eq. 16), minus baselines.

    Raises UserError for fewer than three samples: two samples have the same distance, so their advantages are 0.
    """
    if samples < 3:
        raise UserError(f"sll_sle: expected 3 samples or more per image, got {samples}; raise the method's samples")
    channel = Multinomial(samples)
    # factor 2: the speaker generates both captions of a pair (Eq. 13)
    estimator = score_function(objective, "group", channel)
    exploration = Term("exploration", 2 * (1 - alpha), SetDistance(), estimator)
    return _build_method(
        agents, _build_precision_term(agents, objective, channel, alpha * scale / MAX_CIDER), exploration
    )


def _build_precision_term(agents: Agents, objective: Objective, channel: Multinomial, weight: float) -> Term:
    return Term("naturalness", weight, CiderScore(agents.cider), score_function(objective, channel=channel))


def _build_method(agents: Agents, *terms: Term) -> Method:
    return Method(agents.roles, terms, SPEAKER_ONLY)
