"""Interfaces between the layers: channels, scores, baselines, credit, scalings and estimators."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, runtime_checkable

from torch import Generator, Tensor

from pipeline.random import BatchRandom
from pipeline.types import Batch, Message, Report, TokenChoice


class Channel(Protocol):
    """Rule that chooses tokens and determines their encoding.

    Channels are frozen dataclasses, because equal channels share one rollout.
    """

    @property
    def rng_key(self) -> str:
        """Return the name of the random stream, whose seed depends only on this name, the run's seed and the step."""

    @property
    def samples(self) -> int:
        """Return the number of captions per image in the message."""

    @property
    def width(self) -> int:
        """Return the number of unrolled captions per image; beam search may keep fewer of them as `samples`."""

    @property
    def requires_grad(self) -> bool:
        """Return whether a gradient can reach the speaker; without one the rollout builds no graph."""

    @property
    def dropout(self) -> bool:
        """Return whether a speaker in training mode keeps its dropout during rollouts through this channel."""

    @property
    def relaxes(self) -> bool:
        """Return whether tokens pass a gradient to a distribution (`RelaxingChannel`), not to their log-probability."""

    @property
    def entropies(self) -> bool:
        """Return whether a message holds each token's entropy in addition to its log-probability."""

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Callable[[int, Tensor, Tensor], TokenChoice]:
        """Begin B·width captions and return the function that chooses their tokens.

        Its arguments are the time step, logits (N, V+1) without a graph, and rows (N,) int64. The rows are indices
        among the B·width captions; ended captions may be absent. A caption's draw must not depend on absent captions.
        """


class RelaxingChannel(Channel, Protocol):
    """A channel whose tokens pass a gradient to a distribution (`relaxes`)."""

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """Return the values (M, V+1) that receive the gradient of the tokens `index` (M,).

        They are differentiable in `logits`; only their gradient is used. `noise` is the noise of the `TokenChoice`.
        """

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """Return the distributions (M, V+1) that replace the tokens `index` (M,), differentiable in `logits`."""


class Score(Protocol):
    """A number per caption; higher is better."""

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient passes to the message, through `relaxed`, `entropies` or `logits`."""

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        """Compute one number per caption, (N,)."""


@runtime_checkable
class BatchScore(Protocol):
    """A score that needs other captions of the same step, from any channel, or the step's random numbers."""

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient passes to the message, as in `Score.differentiable`."""

    def bind_batch(self, rollouts: Rollouts) -> Score:
        """Return the score for the captions of this step."""


class Rollouts(Protocol):
    """The speaker's captions of one training step."""

    batch: Batch

    def get_message(self, channel: Channel) -> Message:
        """Return the captions through `channel`; repeated calls share one rollout."""

    def continue_prefixes(self, channel: Channel, samples: int) -> Message:
        """Generate `samples` continuations of every prefix of the captions (N, T) through `channel`, without gradient.

        Prefixes end at each position except the last. Rows are in the order (n, t, k). A caption that ended within the
        prefix is repeated unchanged.
        """

    def random(self, name: str) -> BatchRandom:
        """Return random numbers for the captions of this step, a separate stream for each `name`."""

    def cached(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """Return the result of `make`, computed once in this step for each `key`."""


class Baseline(Protocol):
    """A number that is subtracted from a caption's score; no gradient passes through it."""

    @property
    def min_samples(self) -> int:
        """Return the minimum number of captions per image."""

    @property
    def per_token(self) -> bool:
        """Return whether there is one number per token, (N, T), not one per caption, (N,)."""

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        """Compute the baseline, (N,) or before each token (N, T), of captions with the scores `value` (N,)."""


class Credit(Protocol):
    """The share of a score that each token receives; no gradient passes through it."""

    @property
    def per_token(self) -> bool:
        """Return whether there is one number per token, (N, T), not one per caption, (N,)."""

    def __call__(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        """Compute the credit, (N,) or (N, T), of captions through `channel` with the scores `value` (N,)."""


class Scaling(Protocol):
    """The divisor of advantages."""

    @property
    def min_samples(self) -> int:
        """Return the minimum number of captions per image."""

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        """Return the scaled advantages (N,) of `advantage` (N,). Only `NoScaling` also receives (N, T)."""


class Estimator(Protocol):
    """The path of a score's gradient to the speaker."""

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        """Return a scalar to be minimised, and a report to be logged.

        The scalar's gradient estimates the gradient of −E[score].
        """
