"""Sequence-level learning, and two ways to make it explore (Chen and Jin, CVPR 2020): by words, and by captions.

No listener takes part. Losses are means over words, so they are the paper's divided by the words of a caption.
`scale` is what CIDEr-D's maximum counts: 10 as everybody prints it, 1 as the paper's theory has it (Eq. 2).
"""

from __future__ import annotations

from pipeline.channels.words import Multinomial
from pipeline.composition.joint import Agents, Objective, by_likelihood
from pipeline.composition.method import SPEAKER_ONLY, Method, Term
from pipeline.errors import UserError
from pipeline.estimators.surrogate import Pathwise
from pipeline.ranges import Count, NonNegative, Positive, Share
from pipeline.scores.diversity import Entropy, SetDistance
from pipeline.scores.naturalness import Cider
from pipeline.scores.rewards import Reward, mixed

PRINTED = 10  # CIDEr-D's maximum


def sll(agents: Agents, objective: Objective, samples: Count = 1, reward: Reward = "cider") -> Method:
    """Self-critical sequence training (Rennie et al. 2017): the reward of samples minus that of the greedy caption."""
    score = mixed(reward, agents.cider, agents.texts)
    expected = by_likelihood(objective, channel=Multinomial(samples))
    return _exploring(agents, objective, Term("naturalness", 1.0, score, expected))


def sll_me(
    agents: Agents, objective: Objective, weight: NonNegative = 0.01, samples: Count = 1, scale: Positive = 10.0
) -> Method:
    """SLL, and `weight` times the entropy of each word's distribution."""
    channel = Multinomial(samples, entropies=True)
    precision = _precision(agents, objective, channel, scale / PRINTED)
    return _exploring(agents, objective, precision, Term("entropy", weight, Entropy(), Pathwise(channel, "words")))


def sll_sle(
    agents: Agents, objective: Objective, alpha: Share = 0.75, samples: Count = 5, scale: Positive = 10.0
) -> Method:
    """α · CIDEr-D + (1 − α) · the distance of an image's samples from each other (Eq. 16), each minus its baseline.

    Raises UserError for fewer than three samples: two are equally far from each other, which says nothing of either.
    """
    if samples < 3:
        raise UserError(f"sll_sle: samples = {samples}; distances tell captions apart where there are 3 or more")
    channel = Multinomial(samples)
    # 2: both captions of a pair are the speaker's (Eq. 13)
    apart = by_likelihood(objective, "group", channel)
    exploration = Term("exploration", 2 * (1 - alpha), SetDistance(), apart)
    return _exploring(agents, objective, _precision(agents, objective, channel, alpha * scale / PRINTED), exploration)


def _precision(agents: Agents, objective: Objective, channel: Multinomial, weight: float) -> Term:
    return Term("naturalness", weight, Cider(agents.cider), by_likelihood(objective, channel=channel))


def _exploring(agents: Agents, objective: Objective, *terms: Term) -> Method:
    return Method(agents.roles, tuple(term for term in terms if term.weight), SPEAKER_ONLY, objective.normalise)
