"""Parts that joint-training methods share: agents, constructors for the objective's settings, the λ trade-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.search import SearchTrajectory
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.method import CRITIC, JOINT, LISTENER, SPEAKER, Method, Term, UpdateSchedule
from pipeline.composition.objective import BaselineName as BaselineName
from pipeline.composition.objective import Objective as Objective
from pipeline.composition.reference_cider import build_reference_cider
from pipeline.data.corpus import tokenise
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.estimators.baselines import (
    BatchStd,
    CentredBaseline,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    RunningMean,
    SelfCritical,
)
from pipeline.estimators.critic_baseline import CriticBaseline, CriticLoss
from pipeline.estimators.surrogate import NoBaseline, NoScaling, Pathwise, ScoreFunction
from pipeline.metrics.cider import CiderD
from pipeline.metrics.text_rewards import TextScorer
from pipeline.models.critic import Critic
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.protocols import Baseline, Channel, Credit, Estimator, Scaling, Score
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import CiderScore, HumanCaption
from pipeline.types import Words


@dataclass(frozen=True)
class Agents:
    """The speaker, the listener, and the reference statistics of the naturalness scores."""

    speaker: Decoder
    listener: Listener
    cider: CiderD
    texts: TextScorer

    @property
    def roles(self) -> dict[str, nn.Module]:
        """Return the networks by role, as `Method` expects them."""
        return {"speaker": self.speaker, "listener": self.listener}


def pair_agents(
    speaker: nn.Module, listener: nn.Module, prepared: PreparedData, objective: Objective, device: torch.device
) -> Agents:
    """Return both agents, with the metrics that compare captions with the human captions.

    The speaker's logits are divided by the objective's temperature, in place.
    """
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    speaker.divide_logits(objective.speaker_temperature)
    cider = build_reference_cider(prepared, objective.eos_in_reward, objective.document_frequencies)
    return Agents(speaker, listener, cider.to(device), build_text_scorer(prepared))


def build_text_scorer(prepared: PreparedData) -> TextScorer:
    """Build the metrics that compare texts with all human captions of an image, not clipped to `max_words`."""
    vocabulary = prepared.vocabulary

    def decode(tokens: Sequence[int]) -> str:
        text = vocabulary.decode(tokens)
        return " ".join(tokenise(text)) if vocabulary.encodes_text else text

    return TextScorer(decode, lambda image: [" ".join(words) for words in prepared.words(image)])


def make_hinge(objective: Objective, listener: Listener) -> Hinge:
    """Build the hinge with the objective's margin and negatives."""
    return Hinge(listener, objective.margin, objective.negatives)


def make_baseline(objective: Objective, name: BaselineName) -> Baseline:
    """Build the baseline `name`, with the objective's settings."""
    baselines: dict[BaselineName, Baseline] = {
        "greedy": SelfCritical(Greedy(dropout=objective.greedy_dropout)),
        "leave_one_out": LeaveOneOut(),
        "group": GroupMean(),
        "running_mean": RunningMean(),
        "ground_truth": SelfCritical(TeacherForcing(requires_grad=False)),
        "none": NoBaseline(),
    }
    return baselines[name]


def score_function(
    objective: Objective, baseline: BaselineName | None = None, channel: Channel | None = None
) -> ScoreFunction:
    """Build REINFORCE on multinomial samples; `baseline` and `channel` override the objective's.

    Raises UserError for a running mean whose advantages are centred, since centring removes any constant. Raises
    UserError, too, as `ScoreFunction` does.
    """
    inner = make_baseline(objective, baseline or objective.baseline)
    if objective.centre_advantages and isinstance(inner, RunningMean):
        raise UserError(
            "centre_advantages: expected another baseline than running_mean, which centring removes; set "
            "centre_advantages to false, or choose another baseline"
        )
    scalings: dict[str, Scaling] = {"none": NoScaling(), "group": GroupStd(), "batch": BatchStd()}
    return ScoreFunction(
        Multinomial(objective.samples) if channel is None else channel,
        CentredBaseline(inner) if objective.centre_advantages else inner,
        scaling=scalings[objective.advantage_scaling],
    )


def build_tradeoff(
    agents: Agents,
    objective: Objective,
    lam: float,
    discriminability: Estimator,
    schedule: UpdateSchedule,
    listener_estimator: Estimator | None = None,
    naturalness: Estimator | None = None,
) -> Method:
    """Build the objective λ · discriminability + (1 − λ) · CIDEr-D (PSST Eq. 3).

    The hinge uses the estimator `discriminability`; CIDEr-D uses `naturalness`, by default the score function.
    With `objective.cross_entropy_weight`, the cross-entropy of a human caption is a third term.
    With `listener_estimator`, that estimator trains the listener on the hinge. `discriminability` then trains only the
    speaker. Raises UserError as `score_function` does.
    """
    hinge = make_hinge(objective, agents.listener)
    terms = [
        Term("discriminability", lam, hinge, discriminability, SPEAKER if listener_estimator else SPEAKER | LISTENER),
        Term("naturalness", 1 - lam, CiderScore(agents.cider), naturalness or score_function(objective), SPEAKER),
        Term(
            "cross_entropy",
            (1 - lam) * objective.cross_entropy_weight,
            HumanCaption(),
            ScoreFunction(TeacherForcing()),
            SPEAKER,
        ),
    ]
    if listener_estimator:
        terms.append(Term("matching", lam, hinge, listener_estimator, LISTENER))
    return Method(agents.roles, tuple(terms), schedule)


def pathwise(agents: Agents, objective: Objective, lam: float, channel: Channel) -> Method:
    """Build joint training in which the hinge's gradient reaches the speaker through the tokens of `channel`.

    Raises UserError where CIDEr-D shares the listener's sample and the objective asks for several samples. With
    `PartialSampling` (PSST), CIDEr-D always scores its own samples. Raises UserError as `score_function` does, too.
    """
    naturalness = None
    if objective.cider_sample == "shared" and not isinstance(channel, PartialSampling):
        if objective.samples != 1:
            raise UserError(
                f"cider_sample shared: expected samples 1, got {objective.samples}; set samples to 1, or cider_sample "
                "to own"
            )
        naturalness = score_function(objective, channel=SearchTrajectory(channel))
    return build_tradeoff(
        agents, objective, lam, Pathwise(channel, objective.reduction), JOINT, naturalness=naturalness
    )


def build_critic_method(
    agents: Agents,
    objective: Objective,
    lam: float,
    score: Score,
    channel: Channel,
    credit: Credit,
    hidden: int,
    warmup_steps: int,
    words: Words = "all",
) -> Method:
    """Build λ · hinge + (1 − λ) · score by score functions, with a learned critic as the baseline of `score`.

    Only the critic is trained in the first `warmup_steps` steps, then both the critic and the speaker. Raises
    UserError as `score_function` does.
    """
    critic = Critic(agents.speaker.hidden, hidden)
    baseline = CriticBaseline(critic, channel)
    terms = (
        Term("discriminability", lam, make_hinge(objective, agents.listener), score_function(objective), SPEAKER),
        Term("naturalness", 1 - lam, score, ScoreFunction(channel, baseline, credit=credit, words=words), SPEAKER),
        Term("critic", 1.0, score, CriticLoss(channel, critic, credit, words), CRITIC),
    )
    schedule = UpdateSchedule((SPEAKER | CRITIC,), CRITIC, warmup_steps)
    return Method({**agents.roles, "critic": critic}, terms, schedule)
